package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weir/internal/c2pa"
	"weir/internal/guard"
	"weir/internal/publish"
	"weir/internal/weir"
)

// verifyCmd is `weir verify FILE…`, `weir verify INIT SEGMENT…` and `weir verify PLAYLIST`.
type verifyCmd struct {
	Path  []string `arg:"" name:"path" help:"MP4 files; an init segment and segments of it; or an HLS playlist, a file or a URL."`
	Trust string   `placeholder:"FILE" help:"Root certificates (PEM) to trust, such as that of a weir at /api/c2pa/root.pem."`
	JSON  bool     `name:"json" help:"Write the result as JSON."`
}

// Help is what `weir verify --help` shows below the usage.
func (verifyCmd) Help() string {
	return `Says who signed a video (C2PA), what was done with it, and whether it was changed since.

Examples:
  weir verify film.mp4
  weir verify 720p/init.mp4 720p/0.m4s 720p/1.m4s
  weir verify https://video.example.com/film/index.m3u8 --trust root.pem

Of a playlist, all segments of all renditions are read, and none may be missing. A video is trusted if a certificate of --trust vouches for
its signer, valid if it is as it was signed, by somebody who is not known, and tainted if it is as it was signed, but
its source was not.

Exit codes: 0 valid or trusted (with --trust: trusted), 1 it could not be read, 2 anything else.`
}

func (c verifyCmd) Run(ctx context.Context) error {
	results, err := c.verify(ctx)
	if err != nil {
		return err
	}
	if err := c.print(os.Stdout, results); err != nil {
		return err
	}
	for _, r := range results {
		if r.State != c2pa.Trusted && (r.State != c2pa.Valid || c.Trust != "") {
			return &exitError{error: errors.New("a video is invalid, tainted, not signed or not trusted"), status: exitInvalid, shown: true}
		}
	}
	return nil
}

func (c verifyCmd) verify(ctx context.Context) (results []publish.Verified, err error) {
	o := c2pa.Options{Now: time.Now()}
	if c.Trust != "" {
		if o.Trust, err = os.ReadFile(c.Trust); err != nil {
			return nil, weir.Errorf(weir.Invalid, "--trust: %s", err.Error())
		}
	}
	if first := c.Path[0]; len(c.Path) == 1 && (isWeb(first) || strings.EqualFold(filepath.Ext(first), ".m3u8")) {
		return c.playlist(ctx, first, o)
	}
	if len(c.Path) > 1 {
		start, err := startOf(c.Path[1])
		if err != nil {
			return nil, err
		}
		if c2pa.IsSegment(start) {
			return c.segments(o)
		}
	}
	for _, name := range c.Path {
		report, err := withFile(name, func(file io.ReaderAt, size int64) (c2pa.Report, error) { return c2pa.Verify(file, size, o) })
		if err != nil {
			return nil, err
		}
		results = append(results, publish.Verified{Name: name, Report: report})
	}
	return results, nil
}

func isWeb(name string) bool {
	return strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://")
}

// startOf returns the first bytes of a file.
func startOf(name string) ([]byte, error) {
	return withFile(name, func(file io.ReaderAt, size int64) ([]byte, error) {
		start := make([]byte, min(size, 8))
		_, err := file.ReadAt(start, 0)
		return start, err
	})
}

func withFile[T any](name string, do func(file io.ReaderAt, size int64) (T, error)) (result T, err error) {
	file, err := os.Open(name)
	if err != nil {
		return result, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return result, err
	}
	if !info.Mode().IsRegular() {
		return result, weir.Errorf(weir.Invalid, "%s: is not a file", name)
	}
	return do(file, info.Size())
}

// segments verifies an init segment and segments.
func (c verifyCmd) segments(o c2pa.Options) ([]publish.Verified, error) {
	init, err := os.ReadFile(c.Path[0])
	if err != nil {
		return nil, err
	}
	fragments := c2pa.VerifyInit(init, o)
	result := publish.Verified{Name: c.Path[0]}
	for _, name := range c.Path[1:] {
		ok, err := withFile(name, func(file io.ReaderAt, size int64) (bool, error) {
			_, ok, err := fragments.Segment(name, file, size)
			return ok, err
		})
		if err != nil {
			return nil, err
		}
		if ok {
			result.Segments++
		}
	}
	result.Report = fragments.Report()
	return []publish.Verified{result}, nil
}

// playlist verifies everything that a playlist names.
func (c verifyCmd) playlist(ctx context.Context, address string, o c2pa.Options) ([]publish.Verified, error) {
	if !isWeb(address) {
		path, err := filepath.Abs(address)
		if err != nil {
			return nil, err
		}
		address = (&url.URL{Scheme: "file", Path: filepath.ToSlash(path)}).String()
	}
	// A person on this machine may read from all networks.
	everywhere := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	client := guard.New(everywhere).Client(10 * time.Minute)
	fetch := func(ctx context.Context, address string, into *os.File) error {
		from, err := openURL(ctx, client, address)
		if err != nil {
			return err
		}
		defer from.Close()
		_, err = io.Copy(into, from)
		return err
	}
	dir, err := os.MkdirTemp("", "weir-verify-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	return publish.VerifyPlaylist(ctx, address, publish.VerifyOptions{Options: o, Fetch: fetch, Dir: dir})
}

// openURL opens a file or what a server has. A playlist of a server can't name files.
func openURL(ctx context.Context, client *http.Client, address string) (io.ReadCloser, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "file" {
		return os.Open(filepath.FromSlash(u.Path))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, weir.Errorf(weir.Upstream, "%s: the server answers %s", address, resp.Status)
	}
	return resp.Body, nil
}

func (c verifyCmd) print(w io.Writer, results []publish.Verified) error {
	if c.JSON {
		text, err := json.MarshalIndent(results, "", "  ")
		if err != nil {
			return err
		}
		return show(w, "%s\n", text)
	}
	var text strings.Builder
	for i, r := range results {
		if i > 0 {
			text.WriteByte('\n')
		}
		fmt.Fprintf(&text, "%s: %s\n", r.Name, r.State)
		if r.Segments > 0 {
			fmt.Fprintf(&text, "  segments   %d\n", r.Segments)
		}
		if r.Note != "" {
			fmt.Fprintf(&text, "  note       %s\n", r.Note)
		}
		for _, p := range r.Problems {
			fmt.Fprintf(&text, "  problem    %s (%s)\n", strings.TrimSpace(p.Where+" "+p.Explanation), p.Code)
		}
		if r.Manifest != nil {
			describeManifest(&text, *r.Manifest, "  ")
		}
	}
	return show(w, "%s", text.String())
}

// describeManifest writes what a manifest says, and its ingredients.
func describeManifest(w io.Writer, m c2pa.Manifest, indent string) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s%-10s %s\n", indent, name, value)
		}
	}
	line("manifest", m.ID)
	line("title", m.Title)
	line("made by", m.Generator)
	if m.Tracks != nil {
		var names []string
		for _, t := range m.Tracks.All {
			if !slices.Contains(names, t.Name) {
				names = append(names, t.Name)
			}
		}
		line("tracks", strings.Join(names, ", "))
	}
	if m.Signer != nil {
		line("signer", m.Signer.Subject)
		line("issuer", m.Signer.Issuer)
		line("signature", m.Signer.Alg+", certificate "+m.Signer.Fingerprint)
	}
	if m.SignedAt != nil {
		line("signed at", m.SignedAt.Format(time.RFC3339))
	}
	for _, a := range m.Actions {
		line("action", strings.TrimSpace(a.Action+" "+a.When))
	}
	for _, p := range m.Problems {
		line("problem", p.Explanation)
	}
	for _, i := range m.Ingredients {
		line("source", strings.TrimSpace(i.Title+" "+i.Format))
		line("", i.Description)
		for _, p := range i.Problems {
			line("problem", strings.TrimSpace(p.Where+" "+p.Explanation)+" ("+p.Code+"), when it was used")
		}
		if i.Manifest != nil {
			describeManifest(w, *i.Manifest, indent+"  ")
		}
	}
}
