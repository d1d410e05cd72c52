package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/weir"
)

// What is there is overwritten only by consent.
func TestOverwrite(t *testing.T) {
	dir := t.TempDir()
	folder := func(name string, files ...string) string {
		path := filepath.Join(dir, name)
		for _, file := range files {
			if err := errors.Join(os.MkdirAll(path, 0o700), os.WriteFile(filepath.Join(path, file), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	full := folder("full", "index.m3u8")
	file := filepath.Join(full, "index.m3u8")
	for _, tt := range []struct {
		name    string
		path    string
		folder  bool
		consent consent
		reply   string
		want    string // of the error
		asked   bool
	}{
		{name: "no folder", path: filepath.Join(dir, "none"), folder: true},
		{name: "hidden files", path: folder("hidden", ".DS_Store"), folder: true},
		{name: "killed before", path: folder("killed", "index.m3u8", workFolder), folder: true},
		{name: "full folder", path: full, folder: true, want: "--yes"},
		{name: "full folder with --yes", path: full, folder: true, consent: consent{yes: true}},
		{name: "full folder, yes", path: full, folder: true, consent: consent{terminal: true}, reply: "y\n", asked: true},
		{name: "full folder, no", path: full, folder: true, consent: consent{terminal: true}, reply: "\n", want: "was not overwritten", asked: true},
		{name: "no file", path: filepath.Join(dir, "none.mp4")},
		{name: "file", path: file, want: "index.m3u8: exists; choose another path, or overwrite with --yes"},
		{name: "file with --yes", path: file, consent: consent{yes: true, terminal: true}},
		{name: "file, yes", path: file, consent: consent{terminal: true}, reply: "YES\n", asked: true},
		{name: "file, end of input", path: file, consent: consent{terminal: true}, want: "was not overwritten", asked: true},
		{name: "device", path: os.DevNull},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var said bytes.Buffer
			tt.consent.in, tt.consent.out = strings.NewReader(tt.reply), &said
			err := tt.consent.file(t.Context(), tt.path)
			if tt.folder {
				err = tt.consent.folder(t.Context(), tt.path, workFolder)
			}
			if tt.want == "" && err != nil || tt.want != "" && (weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if asked := strings.HasSuffix(said.String(), "[y/N] "); asked != tt.asked {
				t.Errorf("it said %q", said.String())
			}
		})
	}
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		in, out := io.Pipe()
		defer out.Close() // ends the read
		if err := (consent{terminal: true, in: in, out: io.Discard}).file(ctx, file); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}
