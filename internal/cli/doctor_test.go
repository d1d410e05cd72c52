package cli

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/config"
	"weir/internal/ffmpeg"
	"weir/internal/store"
	"weir/internal/store/storetest"
	"weir/internal/weir"
)

// program writes a shell script that can be found in PATH under the name.
func program(t *testing.T, dir, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}

// fakeFFmpeg answers like an ffmpeg that has some encoders and filters.
const fakeFFmpeg = `case "$*" in
*-encoders*) echo " V..... = Video"; for name in libx264 libx265 libvpx-vp9 libaom-av1 aac; do echo " V..... $name it"; done ;;
*-filters*) echo " ... zscale V->V it"; echo " ... tonemap V->V it" ;;
*) echo ffmpeg version 5.1.6-0 Copyright; echo more ;;
esac`

func TestExamineHealthy(t *testing.T) {
	bin, data := t.TempDir(), t.TempDir()
	program(t, bin, "ffmpeg", fakeFFmpeg)
	program(t, bin, "ffprobe", "echo ffprobe version 5.1.6-0 Copyright")
	t.Setenv("PATH", bin)
	cfg := &config.Config{Data: data, Database: "sqlite:x", SecretFile: filepath.Join(data, "secret"), HTTP: "127.0.0.1:0", Ops: "127.0.0.1:0"}
	findings := examine(t.Context(), cfg, func(context.Context, *config.Config) ([]finding, error) { return nil, nil })

	var out bytes.Buffer
	healthy, err := report(&out, findings)
	if err != nil {
		t.Fatal(err)
	}
	if !healthy {
		t.Errorf("not healthy:\n%s", out.String())
	}
	for _, want := range []string{"ffmpeg", "5.1.6-0 at " + bin, "data folder", "free space", "master secret", "will be made", "database", "http 127.0.0.1:0", "ops 127.0.0.1:0", "seccomp", "landlock", "limits", "ffmpeg runs, mode require", "H.264, HEVC, VP9, AV1, AAC, tone mapping; not in this ffmpeg: Opus"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not have %q:\n%s", want, out.String())
		}
	}
	entries, err := os.ReadDir(data)
	if err != nil || len(entries) != 0 {
		t.Errorf("the data folder was changed: %v %v", entries, err)
	}
}

func TestExamineFindsWhatIsMissing(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	taken := other.Listener.Addr().String()
	file := writeFile(t, "")
	good := func() *config.Config {
		data := t.TempDir()
		return &config.Config{Data: data, Database: "sqlite:x", SecretFile: filepath.Join(data, "secret")}
	}
	for _, tt := range []struct {
		name    string
		change  func(t *testing.T, cfg *config.Config)
		what    string
		state   state
		details string
	}{
		{"no ffmpeg", func(*testing.T, *config.Config) {}, "ffmpeg", stateMissing, "apt-get install ffmpeg"},
		{"data is a file", func(t *testing.T, c *config.Config) { c.Data = file }, "data folder", stateMissing, "not a folder"},
		{"no secret with PostgreSQL", func(t *testing.T, c *config.Config) { c.Database = "postgres://h/d" }, "master secret", stateMissing, "does not exist"},
		{"open secret", func(t *testing.T, c *config.Config) {
			c.SecretFile = writeFile(t, "x")
			if err := os.Chmod(c.SecretFile, 0o644); err != nil {
				t.Fatal(err)
			}
		}, "master secret", stateNote, "chmod 600"},
		{"secret is fine", func(t *testing.T, c *config.Config) { c.SecretFile = writeFile(t, "x") }, "master secret", stateOK, "settings.yaml"},
		{"address taken", func(t *testing.T, c *config.Config) { c.HTTP = taken }, "http " + taken, stateMissing, "another program"},
		{"certificate missing", func(t *testing.T, c *config.Config) { c.TLSCert, c.TLSKey = "nowhere", "nowhere" }, "certificate", stateMissing, "nowhere"},
		{"database down", func(*testing.T, *config.Config) {}, "database", stateMissing, "no answer"},
		{"ffmpeg does not run", func(t *testing.T, c *config.Config) {
			bin := t.TempDir()
			program(t, bin, "ffmpeg", "exit 3")
			program(t, bin, "ffprobe", "exit 3")
			t.Setenv("PATH", bin)
		}, "sandbox", stateMissing, "ffmpeg does not run in mode require"},
		{"no H.264", func(t *testing.T, c *config.Config) {
			bin := t.TempDir()
			program(t, bin, "ffmpeg", strings.ReplaceAll(fakeFFmpeg, "libx264 ", ""))
			program(t, bin, "ffprobe", "exit 3")
			t.Setenv("PATH", bin)
		}, "encoders", stateMissing, "not in this ffmpeg: H.264, Opus; install one with libx264"},
		{"data not there yet", func(t *testing.T, c *config.Config) { c.Data = filepath.Join(c.Data, "a", "b") }, "data folder", stateOK, "can be written"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("PATH", t.TempDir())
			cfg := good()
			tt.change(t, cfg)
			for _, f := range examine(t.Context(), cfg, func(context.Context, *config.Config) ([]finding, error) { return nil, errors.New("no answer") }) {
				if f.what == tt.what {
					if f.state != tt.state || !strings.Contains(f.detail, tt.details) {
						t.Errorf("found %+v, want state %s and %q", f, tt.state, tt.details)
					}
					healthy, err := report(&bytes.Buffer{}, []finding{f})
					if err != nil || healthy != (tt.state != stateMissing) {
						t.Errorf("report of %+v: healthy %v, error %v", f, healthy, err)
					}
					return
				}
			}
			t.Errorf("nothing was found out about %q", tt.what)
		})
	}
}

func TestExamineKernel(t *testing.T) {
	for _, tt := range []struct {
		got  finding
		want state
	}{
		{examineSeccomp(ffmpeg.Kernel{Seccomp: true}, ffmpeg.Require), stateOK},
		{examineSeccomp(ffmpeg.Kernel{}, ffmpeg.Require), stateMissing},
		{examineSeccomp(ffmpeg.Kernel{}, ffmpeg.Best), stateNote},
		{examineSeccomp(ffmpeg.Kernel{}, ffmpeg.Strict), stateMissing},
		{examineLandlock(ffmpeg.Kernel{Landlock: 3}, ffmpeg.Require), stateOK},
		{examineLandlock(ffmpeg.Kernel{Landlock: 1}, ffmpeg.Strict), stateOK},
		{examineLandlock(ffmpeg.Kernel{}, ffmpeg.Require), stateNote},
		{examineLandlock(ffmpeg.Kernel{}, ffmpeg.Best), stateNote},
		{examineLandlock(ffmpeg.Kernel{}, ffmpeg.Strict), stateMissing},
	} {
		if tt.got.state != tt.want {
			t.Errorf("found %+v, want %s", tt.got, tt.want)
		}
	}
}

func TestBrokenProgram(t *testing.T) {
	bin := t.TempDir()
	program(t, bin, "ffmpeg", "exit 1")
	program(t, bin, "ffprobe", "echo I am something else")
	t.Setenv("PATH", bin)
	for _, name := range []string{"ffmpeg", "ffprobe"} {
		if f := examineProgram(t.Context(), name); f.state != stateMissing {
			t.Errorf("a broken %s: %+v", name, f)
		}
	}
}

func TestRunningWeirIsRecognised(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			_, _ = w.Write([]byte(`{"ok":true}`))
		}
	})
	plain, secure := httptest.NewServer(handler), httptest.NewUnstartedServer(handler)
	defer plain.Close()
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // one case speaks HTTP to it
	secure.StartTLS()
	defer secure.Close()
	for _, tt := range []struct {
		server *httptest.Server
		secure bool
		isWeir func(context.Context, endpoint) bool
		want   state
	}{
		{plain, false, serves("/healthz", `"ok":true`), stateOK},
		{secure, true, serves("/healthz", `"ok":true`), stateOK},
		{secure, false, serves("/healthz", `"ok":true`), stateMissing},
		{plain, false, serves("/metrics", "weir_build_info"), stateMissing},
	} {
		e := endpoint{setting: "http", addr: tt.server.Listener.Addr().String(), secure: tt.secure, isWeir: tt.isWeir}
		if f := e.examine(t.Context()); f.state != tt.want {
			t.Errorf("at %s: %+v, want %s", tt.server.URL, f, tt.want)
		}
	}
}

func TestExamineReferences(t *testing.T) {
	ctx, options := t.Context(), store.Options{Secret: bytes.Repeat([]byte{7}, 32)}
	st, err := store.Open(ctx, storetest.SQLite(t, store.Open, options), options)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	add := func(n int) {
		t.Helper()
		if err := st.Tx(ctx, func(tx *store.Tx) error {
			for range n {
				target, err := weir.NewTarget{URL: "rtmp://example.com/app/hunter2"}.Target("u", "one", time.Now())
				if err != nil {
					return err
				}
				stream, err := weir.NewStream{Name: "a"}.Stream(&weir.Caller{UserID: "u", ProjectID: "other"}, time.Now())
				if err != nil {
					return err
				}
				stream.Multistream.Targets = []weir.TargetRef{{ID: target.ID, Profile: weir.SourceProfile}}
				if err := errors.Join(tx.CreateTarget(ctx, &target), tx.CreateStream(ctx, &stream)); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		add, want int
		text      string
	}{{0, 0, ""}, {1, 1, " of another project"}, {maxReferences, maxReferences + 1, "and more"}} {
		add(tt.add)
		findings, err := examineReferences(ctx, st)
		if err != nil || len(findings) != tt.want {
			t.Fatalf("%d findings, %v; want %d", len(findings), err, tt.want)
		}
		if n := len(findings); n > 0 && (findings[n-1].state != stateNote || !strings.Contains(findings[n-1].detail, tt.text)) {
			t.Errorf("found %+v, want a note with %q", findings[n-1], tt.text)
		}
	}
}

// TestExamineOrphans lists what is left of accounts that were deleted without their content.
func TestExamineOrphans(t *testing.T) {
	ctx, options := t.Context(), store.Options{Secret: bytes.Repeat([]byte{7}, 32)}
	st, err := store.Open(ctx, storetest.SQLite(t, store.Open, options), options)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if got, err := examineOrphans(ctx, st); err != nil || len(got) != 0 {
		t.Errorf("in a new database: %v, %v", got, err)
	}
	stream, err := weir.NewStream{Name: "left"}.Stream(&weir.Caller{UserID: "nobody", ProjectID: "p"}, time.Now())
	if err == nil {
		err = st.Tx(ctx, func(tx *store.Tx) error { return tx.CreateStream(ctx, &stream) })
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := examineOrphans(ctx, st)
	if err != nil || len(got) != 1 || got[0].state != stateNote || !strings.Contains(got[0].detail, "weir user delete nobody") {
		t.Errorf("findings %+v, %v", got, err)
	}
}
