package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"weir/internal/config"
	"weir/internal/vod"
	"weir/internal/weir"
)

type assetCmd struct {
	Upload assetUploadCmd `cmd:"" help:"Upload files to a running weir."`
	List   assetListCmd   `cmd:"" help:"List the assets of a running weir."`
}

// assetUploadCmd is `weir asset upload FILE…`.
type assetUploadCmd struct {
	File []string `arg:"" help:"Files to upload."`
	Name string   `placeholder:"TEXT" help:"What the asset is called; default: the name of the file."`
	Wait bool     `help:"Wait until every asset is ready, with all renditions."`
	JSON bool     `name:"json" help:"Write one JSON object a line to standard output: progress, then the result of each file, or the error."`
	remote
}

// Help is what `weir asset upload --help` shows below the usage.
func (assetUploadCmd) Help() string {
	return `Uploads files one after the other, and prints for each the id of its asset and where to watch it. An asset
plays within seconds after its file has arrived; --wait waits for its renditions too.

Example:
  weir asset upload film.mov talk.mp4 --wait

An upload survives lost connections and restarts of the server. One that was interrupted continues when the same
command is given again, within --upload-expiry of the server.

Exit codes: 0 done, 1 it failed and may work later, 2 the request or a file is wrong, 130 interrupted.`
}

func (c assetUploadCmd) Run(ctx context.Context, cfg *config.Config) error {
	out := newReporter(c.JSON, os.Stdout, os.Stderr)
	out.interrupted = "interrupted; give the same command again to continue"
	if err := c.upload(ctx, cfg, out); err != nil {
		return out.fail(ctx, err)
	}
	return nil
}

func (c assetUploadCmd) upload(ctx context.Context, cfg *config.Config, out *reporter) error {
	if c.Name != "" && len(c.File) > 1 {
		return weir.Errorf(weir.Invalid, "--name: works with one file only; leave it out to use the names of the files")
	}
	api, err := c.client(cfg)
	if err != nil {
		return err
	}
	for _, path := range c.File { // all of them, before the first is sent
		if info, err := os.Stat(path); err != nil {
			return weir.Errorf(weir.Invalid, "%s: can't be read: %s", path, err.Error())
		} else if !info.Mode().IsRegular() || info.Size() == 0 {
			return weir.Errorf(weir.Invalid, "%s: must be a regular file with at least one byte", path)
		}
	}
	for _, path := range c.File {
		if err := c.uploadFile(ctx, api, out, path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// uploaded is the result of a file in --json.
type uploaded struct {
	Event      string `json:"event"` // result
	File       string `json:"file"`
	ID         string `json:"id"`
	PlaybackID string `json:"playbackId"`
	WatchURL   string `json:"watchUrl"`
	Phase      string `json:"phase,omitempty"` // with --wait
}

func (c assetUploadCmd) uploadFile(ctx context.Context, api *client, out *reporter, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	upload, offset, err := api.openUpload(ctx, path, cmp.Or(c.Name, filepath.Base(path)), info)
	if err != nil {
		return err
	}
	size, from, begun := info.Size(), offset, time.Now()
	err = upload.send(ctx, file, size, offset, func(done int64) {
		p := vod.Progress{Step: "uploading", Fraction: float64(done) / float64(size)}
		if sent := done - from; sent > 0 {
			p.ETA = time.Duration(float64(time.Since(begun)) / float64(sent) * float64(size-done))
		}
		out.progress(p)
	})
	if err != nil {
		return err
	}
	asset := upload.Asset
	if c.Wait {
		if asset, err = waitForAsset(ctx, api, asset.ID, out); err != nil {
			return err
		}
	}
	result := uploaded{"result", path, asset.ID, asset.PlaybackID, api.base + "/play/" + asset.PlaybackID, ""}
	if c.Wait {
		result.Phase = string(asset.Status.Phase)
	}
	if c.JSON {
		out.write(result)
		return nil
	}
	out.endLine()
	return show(out.out, "%s\n  id     %s\n  watch  %s\n", path, result.ID, result.WatchURL)
}

// waitEvery is how often the state of an asset is read.
const waitEvery = time.Second

// waitForAsset waits until an asset is ready.
func waitForAsset(ctx context.Context, api *client, id string, out *reporter) (asset weir.Asset, err error) {
	for {
		err := api.call(ctx, http.MethodGet, "/api/asset/"+url.PathEscape(id), nil, &asset)
		switch {
		case err != nil && !weir.Retriable(err):
			return asset, err
		case err != nil: // the server may be restarting
		case asset.Status.Phase == weir.AssetReady:
			out.progress(vod.Progress{Step: "ready", Fraction: 1})
			return asset, nil
		case asset.Status.Phase == weir.AssetFailed:
			return asset, weir.Errorf(weir.Invalid, "%s", cmp.Or(asset.Status.ErrorMessage, "the asset failed"))
		default:
			p := vod.Progress{Step: "processing"}
			if asset.Status.Progress != nil {
				p.Fraction = *asset.Status.Progress
			}
			out.progress(p)
		}
		select {
		case <-ctx.Done():
			return asset, ctx.Err()
		case <-time.After(waitEvery):
		}
	}
}

type assetListCmd struct {
	remote
}

func (c assetListCmd) Run(ctx context.Context, cfg *config.Config) error {
	api, err := c.client(cfg)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "ID\tNAME\tPHASE\tDURATION\tSIZE\tPLAYBACK ID\tCREATED")
	for path := "/api/asset?order=createdAt-false&limit=1000"; path != ""; {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, api.base+path, nil)
		if err != nil {
			return err
		}
		assets, next, err := api.assets(r)
		if err != nil {
			return err
		}
		for _, a := range assets {
			length := ""
			if a.VideoSpec != nil {
				length = shortTime(time.Duration(a.VideoSpec.Duration * float64(time.Second)))
			}
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", a.ID, cell(a.Name), a.Status.Phase, length, shortSize(a.Size), a.PlaybackID, minute(a.CreatedAt))
		}
		path = next
	}
	return table.Flush()
}

// assets sends a request for a list and returns its items, and the path of the next page.
func (c *client) assets(r *http.Request) (all []weir.Asset, next string, err error) {
	resp, err := c.send(r)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if address, rest, _ := strings.Cut(resp.Header.Get("Link"), ">"); strings.Contains(rest, `rel="next"`) {
		if _, path, ok := strings.Cut(address, "/api/"); ok {
			next = "/api/" + path
		}
	}
	return all, next, json.NewDecoder(resp.Body).Decode(&all)
}
