package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/netip"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"syscall"

	"weir/internal/blob"
	"weir/internal/config"
	"weir/internal/ffmpeg"
	"weir/internal/guard"
	"weir/internal/vod"
	"weir/internal/weir"
)

// transcodeCmd is `weir transcode INPUT OUTDIR`.
type transcodeCmd struct {
	Input  string `arg:"" help:"File to read, or an http(s), s3+http(s), ipfs or ar URL."`
	OutDir string `arg:"" name:"outdir" help:"Folder to write to; made if it is not there."`

	Profile       []string `sep:"none" placeholder:"NAME[:BITRATE]" help:"A rendition, such as 720p:3M, 1280x720:2500k:hevc or 480p:1M:crf26; may be given several times. Default: a ladder that suits the source."`
	Outputs       []string `placeholder:"LIST" help:"What to write, of hls, mp4 and fmp4. Default: hls,mp4"`
	Segment       float64  `placeholder:"SECONDS" help:"Length of a segment to aim at, 2 to 20. Default: 6"`
	GOP           string   `name:"gop" placeholder:"SECONDS" help:"Distance of key frames, or intra for key frames only. Default: 2"`
	NoPassthrough bool     `help:"Encode also what could be copied from the source as it is."`
	JSON          bool     `name:"json" help:"Write one JSON object a line to standard output: progress, then the result or the error."`
}

// Help is what `weir transcode --help` shows below the usage.
func (transcodeCmd) Help() string {
	return `Makes HLS, MP4 or fragmented MP4 from a video, without a server and without a database.

Example:
  weir transcode film.mov out --profile 1080p:6M --profile 720p:3M --profile 360p:800k
  ffplay out/index.m3u8

A rendition is NAME[:BITRATE][:CODEC][:crfN]. NAME is a height (1080p, 720p, 480p, 360p …) or WxH; BITRATE has
the suffix k or M; CODEC is h264 (the default), hevc, vp9 or av1; crfN asks for constant quality with BITRATE as the cap.

Ctrl-C stops and removes what was begun. A command that was killed goes on where it was when it is given again.
Exit codes: 0 done, 1 it failed and may work later, 2 the request or the source is wrong, 130 interrupted.`
}

// Exit statuses of `weir transcode` beside 0 and 1.
const (
	exitInvalid     = 2
	exitInterrupted = 130
)

// Run transcodes a file.
func (c transcodeCmd) Run(ctx context.Context, cfg *config.Config) error {
	out := newReporter(c.JSON, os.Stdout, os.Stderr)
	o, err := c.options(cfg)
	var result weir.TranscodeOutput
	if err == nil {
		o.Progress = out.progress
		result, err = c.transcode(ctx, o)
	}
	if err != nil {
		return out.fail(ctx, err)
	}
	return out.finish(result, c.OutDir)
}

// workFolder is the folder for unfinished files, in that of the outputs.
const workFolder = ".weir-work"

// transcode opens the folder for the outputs and runs the engine.
func (c transcodeCmd) transcode(ctx context.Context, o vod.RunOptions) (result weir.TranscodeOutput, err error) {
	before, statErr := os.Stat(c.OutDir)
	if statErr == nil && !before.IsDir() {
		return result, weir.Errorf(weir.Invalid, "%s: is a file; name a folder", c.OutDir)
	}
	if err := os.MkdirAll(c.OutDir, 0o777); err != nil {
		return result, weir.Errorf(weir.Invalid, "%s: can't be made: %s", c.OutDir, err.Error())
	}
	store, err := openUserDir(c.OutDir)
	if err != nil {
		return result, err
	}
	o.Dest = store
	result, err = vod.Run(ctx, o)
	err = errors.Join(err, store.Close())
	// The store's own folders, if they are empty.
	for _, folder := range []string{".weir/tmp", ".weir/upload", ".weir"} {
		_ = os.Remove(filepath.Join(c.OutDir, folder))
	}
	if err != nil && statErr != nil {
		_ = os.Remove(c.OutDir) // this run made it, and it is empty
	}
	return result, err
}

// options checks the command line and makes the engine's options of it.
func (c transcodeCmd) options(cfg *config.Config) (o vod.RunOptions, err error) {
	for _, text := range c.Profile {
		p, err := parseProfile(text)
		if err != nil {
			return o, err
		}
		p.GOP = c.GOP
		o.Request.Profiles = append(o.Request.Profiles, p)
	}
	if err := weir.CheckFileProfiles(o.Request.Profiles); err != nil {
		return o, err
	}
	if c.GOP != "" && len(c.Profile) == 0 {
		return o, weir.Errorf(weir.Invalid, "--gop: needs a --profile that it applies to")
	}
	if c.Segment != 0 && (c.Segment < 2 || c.Segment > 20) {
		return o, weir.Errorf(weir.Invalid, "--segment: %g is not between 2 and 20 seconds", c.Segment)
	}
	if o.Outputs, err = parseOutputs(c.Outputs); err != nil {
		return o, err
	}
	o.Request.SegmentSeconds = cmp.Or(c.Segment, 6)
	o.Request.EncodeAll = c.NoPassthrough
	o.Request.Workers = cmp.Or(cfg.Workers, runtime.NumCPU())

	dir, err := filepath.Abs(c.OutDir)
	if err != nil {
		return o, err
	}
	o.Source, o.Dir = c.Input, filepath.Join(dir, workFolder)
	o.BaseURL = (&url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}).String()
	// A person on this machine may read from all networks.
	everywhere := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	o.Fetcher = &blob.Fetcher{
		Guard: guard.New(everywhere), MaxSize: cfg.MaxUpload,
		Gateways: blob.Gateways{IPFS: cfg.IPFSGateways, Arweave: cfg.ArweaveGateways},
	}
	o.FFmpeg, err = ffmpeg.New(ffmpeg.Options{Sandbox: ffmpeg.Mode(cfg.Sandbox), Cores: o.Request.Workers})
	return o, err
}

// parseOutputs reads the value of --outputs. All outputs go to the same folder.
func parseOutputs(names []string) (o weir.TranscodeOutputs, err error) {
	if len(names) == 0 {
		names = []string{"hls", "mp4"}
	}
	here := &weir.PathParam{Path: "/"}
	for _, name := range names {
		switch name {
		case "hls":
			o.HLS = here
		case "mp4":
			o.MP4 = here
		case "fmp4":
			o.FMP4 = here
		default:
			return o, weir.Errorf(weir.Invalid, "--outputs: %q is not an output; use hls, mp4, fmp4", name)
		}
	}
	return o, nil
}

// userDir is a store in a folder of the user. Its files get the modes of the user's umask, not
// those of the service's media.
type userDir struct {
	blob.Store
	dir  string
	mask os.FileMode
}

func openUserDir(dir string) (userDir, error) {
	store, err := blob.NewDisk(dir)
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	return userDir{store, dir, os.FileMode(mask)}, err
}

func (s userDir) Put(ctx context.Context, key string, r io.Reader, size int64, o blob.PutOptions) error {
	if err := s.Store.Put(ctx, key, r, size, o); err != nil {
		return err
	}
	return s.setModes(key)
}

func (s userDir) Upload(ctx context.Context, key string, o blob.PutOptions) (blob.Upload, error) {
	u, err := s.Store.Upload(ctx, key, o)
	return userUpload{u, s, key}, err
}

func (s userDir) Resume(ctx context.Context, key, id string) (blob.Upload, error) {
	u, err := s.Store.Resume(ctx, key, id)
	return userUpload{u, s, key}, err
}

type userUpload struct {
	blob.Upload
	store userDir
	key   string
}

func (u userUpload) Complete(ctx context.Context, parts []blob.PartInfo) error {
	if err := u.Upload.Complete(ctx, parts); err != nil {
		return err
	}
	return u.store.setModes(u.key)
}

// setModes sets the modes of a file and of the folders that the store made for it.
func (s userDir) setModes(key string) error {
	if err := os.Chmod(filepath.Join(s.dir, key), 0o666&^s.mask); err != nil {
		return err
	}
	const made = 0o700
	for folder := path.Dir(key); folder != "."; folder = path.Dir(folder) {
		name := filepath.Join(s.dir, folder)
		if info, err := os.Stat(name); err == nil && info.Mode().Perm() == made {
			if err := os.Chmod(name, 0o777&^s.mask); err != nil {
				return err
			}
		}
	}
	return nil
}

// parseProfile reads the value of --profile.
func parseProfile(text string) (weir.Profile, error) {
	p, err := weir.ParseProfile(text)
	if err != nil {
		err = weir.Errorf(weir.Invalid, "--profile %s: %s", text, err)
	}
	return p, err
}
