package live

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/blob"
	"weir/internal/media"
	"weir/internal/weir"
)

// When several nodes carried a session, each has the files of its own period. The node that makes
// the recording fetches the files of the others. If a node is down, it takes them from the storage,
// if nodes share one.

const (
	// maxFetches is how many files of a period are fetched at the same time.
	maxFetches = 4
	// missingTimeout is how long after the last media of a session its recording waits for segments
	// that a node has reported, if the node does not answer and the storage does not have them.
	missingTimeout = time.Minute
	// wholeName is the name of the file in the folder of a period that has all its files.
	wholeName = "whole"
)

// periodFile is a file of a period of a session.
type periodFile struct {
	Path string `json:"path"` // below the folder of the period
	Size int64  `json:"size"`
}

// Files answers other nodes, below prefix: <folder> lists the files of a period, and
// <folder>/<path> is one of them.
func (h *Hub) Files(prefix string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, file, one := strings.Cut(strings.TrimPrefix(r.URL.Path, prefix), "/")
		dir, err := h.Folder(name)
		if err == nil && one {
			err = sendFile(w, r, dir, file)
		} else if err == nil {
			err = sendList(w, dir)
		}
		switch {
		case err == nil:
		case errors.Is(err, fs.ErrNotExist):
			w.WriteHeader(http.StatusNotFound)
		case weir.KindOf(err) == weir.Busy:
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			h.o.Log.WarnContext(r.Context(), "the files of a session could not be sent to another node", "err", err)
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
}

func sendFile(w http.ResponseWriter, r *http.Request, dir, file string) error {
	f, err := os.OpenInRoot(dir, file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fs.ErrNotExist
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", info.ModTime(), f)
	return nil
}

func sendList(w http.ResponseWriter, dir string) error {
	files := []periodFile{}
	for _, track := range []string{videoName, audioName} {
		entries, err := os.ReadDir(filepath.Join(dir, track))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, entry := range entries {
			info, err := entry.Info()
			if err != nil {
				return err
			}
			files = append(files, periodFile{path.Join(track, entry.Name()), info.Size()})
		}
	}
	if len(files) == 0 {
		return fs.ErrNotExist
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(files)
}

// Periods fetches the files of the periods of sessions.
type Periods struct {
	Dir   string     // folder of the sessions of this node
	Node  string     // its name
	Media blob.Store // weir's own storage
	// Ask sends a request to Files of another node. An error of kind NotFound means that it has
	// no such file, one of kind Upstream that it does not answer.
	Ask func(ctx context.Context, node, path string) (io.ReadCloser, error)
}

// Folder returns the folder of a period on this node, and fetches its files from another node
// before, if it is not there. It can be interrupted and repeated. An error of kind NotFound means
// that the period has no files, one of kind Upstream that some may still come.
//
// Once the files are there, none are added: the recording may have been begun with them.
func (p Periods) Folder(ctx context.Context, session weir.Session, period int) (string, error) {
	name, node := session.Folder(period), session.Earlier[period].Node
	dir := filepath.Join(p.Dir, name)
	whole := filepath.Join(dir, wholeName)
	if _, err := os.Stat(whole); node == p.Node || err == nil {
		return dir, nil
	}
	err := p.fetch(ctx, node, name, dir)
	if weir.KindOf(err) == weir.Upstream {
		err = p.restore(ctx, session, period, dir, err)
	}
	if err != nil {
		return dir, err
	}
	return dir, os.WriteFile(whole, nil, 0o600)
}

// restore takes the files of a period from the storage, because its node does not answer.
func (p Periods) restore(ctx context.Context, session weir.Session, period int, dir string, silent error) error {
	segments, err := media.Restore(ctx, p.Media, media.AssetFolder(session.ID), period, dir)
	if weir.KindOf(err) == weir.NotFound {
		return silent
	}
	of := session.Earlier[period]
	finished := of.Next - of.First - 1 // the last one may have been open
	if err == nil && segments < finished && time.Since(session.LastSeen.Time()) < missingTimeout {
		return weir.Wrap(weir.Upstream, silent, "the storage has %d of %d segments that node %s recorded", segments, finished, of.Node)
	}
	return err
}

// fetch fetches the files of a period from another node.
func (p Periods) fetch(ctx context.Context, node, name, dir string) error {
	list, err := p.Ask(ctx, node, name)
	if err != nil {
		return err
	}
	var files []periodFile
	err = json.NewDecoder(list).Decode(&files)
	if err := errors.Join(err, list.Close()); err != nil {
		return weir.Wrap(weir.Upstream, err, "node %s sent no valid list of its files", node)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxFetches)
	for _, f := range files {
		if !filepath.IsLocal(f.Path) {
			return weir.Errorf(weir.Upstream, "node %s lists a file with an invalid path", node)
		}
		g.Go(func() error { return p.fetchFile(ctx, node, name, f, filepath.Join(dir, f.Path)) })
	}
	return g.Wait()
}

func (p Periods) fetchFile(ctx context.Context, node, name string, f periodFile, file string) error {
	if is, err := os.Stat(file); err == nil && is.Size() == f.Size {
		return nil
	}
	body, err := p.Ask(ctx, node, path.Join(name, f.Path))
	if err != nil {
		return err
	}
	defer body.Close()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	to, err := os.Create(file)
	if err != nil {
		return err
	}
	n, err := io.Copy(to, body)
	if err := errors.Join(err, to.Close()); err != nil || n != f.Size {
		return weir.Wrap(weir.Upstream, err, "node %s ended the connection in the middle of a file", node)
	}
	return nil
}
