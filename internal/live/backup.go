package live

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/weir"
)

// Backup finds the recordings of a node that are not assets yet, and copies them while the node
// writes to them. It runs in another process than the node.
//
// A copy has only the tracks of the source, which are the recording. Renditions, and sessions that
// are not recorded, are of no use after the encoder is gone, and their files are used again and
// again while they are on air.
type Backup struct {
	Store *store.Store
	Dir   string // the folder of the sessions
}

// Size returns the number of bytes to copy, about.
func (b Backup) Size(ctx context.Context) (size int64, err error) {
	err = b.each(ctx, func(_ string, tracks map[string]media.Snapshot) error {
		for _, track := range tracks {
			size += track.Size()
		}
		return nil
	})
	return size, err
}

// Copy copies the recordings to a folder, and returns how many there are. copied is called with
// numbers of bytes.
//
// A session may end meanwhile, become an asset and lose its files. Its asset is in the storage then;
// a copy that may lack files is removed, so that a node that starts from the backup takes the asset
// (see work.Recordings). NeedsFiles never becomes true again, and files are only removed after it
// became false. So if it is true after the copy, nothing was removed before.
func (b Backup) Copy(ctx context.Context, to string, copied func(int64)) (n int, err error) {
	err = b.each(ctx, func(folder string, tracks map[string]media.Snapshot) error {
		for name, track := range tracks {
			if err := track.Copy(ctx, filepath.Join(to, folder, name), copied); err != nil {
				return err
			}
		}
		needed, err := b.Store.NeedsFiles(ctx, weir.SessionOf(folder))
		if err == nil && !needed {
			return os.RemoveAll(filepath.Join(to, folder))
		}
		n++
		return err
	})
	return n, err
}

// each calls do for the folder of each recording. The snapshots of its tracks are of one moment, so
// that none is longer than the others.
func (b Backup) each(ctx context.Context, do func(folder string, tracks map[string]media.Snapshot) error) error {
	folders, err := os.ReadDir(b.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, folder := range folders {
		needed, err := b.needed(ctx, folder.Name())
		if err != nil {
			return err
		}
		if !needed {
			continue
		}
		tracks := map[string]media.Snapshot{}
		for _, name := range []string{media.RecordedVideo, media.RecordedAudio} {
			track, err := media.TakeSnapshot(filepath.Join(b.Dir, folder.Name(), name))
			if weir.IsNotFound(err) {
				continue
			}
			if err != nil {
				return err
			}
			tracks[name] = track
		}
		if err := do(folder.Name(), tracks); err != nil {
			return err
		}
	}
	return nil
}

// needed reports whether a folder has a recording that is not an asset yet.
func (b Backup) needed(ctx context.Context, folder string) (bool, error) {
	id := weir.SessionOf(folder)
	session, err := b.Store.Session(ctx, id)
	if weir.IsNotFound(err) {
		return false, nil // another folder, such as that of the posters
	}
	if err != nil || !session.Recorded() {
		return false, err
	}
	return b.Store.NeedsFiles(ctx, id)
}
