package ffmpeg

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"weir/internal/weir"
)

// TestMain is also the main function of the programs that the tests start: `weir sandbox`, and with
// the argument `helper` an ffmpeg that misbehaves (it does not get the environment).
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "sandbox" {
		fmt.Fprintln(os.Stderr, "weir sandbox:", Sandbox(os.Args[2:]))
		os.Exit(125)
	}
	if i := slices.Index(os.Args, "helper"); i > 0 {
		os.Exit(helper(os.Args[i+1], os.Args[i+2:]))
	}
	goleak.VerifyTestMain(m)
}

// helper is an ffmpeg that misbehaves. Its first output is file descriptor 3.
func helper(role string, args []string) int {
	out := os.NewFile(3, "output")
	switch role {
	case "hang":
		_, _ = io.WriteString(out, "here")
		select {}
	case "say": // and fail
		fmt.Fprintln(os.Stderr, strings.Join(args, "\n"))
		return 1
	case "babble":
		for i := range 20_000 {
			fmt.Fprintln(os.Stderr, i, strings.Repeat("bla", i%2000))
		}
		return 1
	case "leave-child": // that holds the pipes open
		child := exec.Command("/bin/sleep", "1000")
		child.Stderr, child.ExtraFiles = os.Stderr, []*os.File{out}
		if err := child.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		_, _ = fmt.Fprint(out, child.Process.Pid)
		if len(args) > 0 { // hang as well
			select {}
		}
		return 0
	case "pour":
		for {
			if _, err := out.Write(make([]byte, 1<<16)); err != nil {
				return 1
			}
		}
	case "engine": // another weir, with an ffmpeg of its own
		self, err := os.Executable()
		if err != nil {
			return 1
		}
		e, err := New(Options{Self: self, Sandbox: Mode(args[0]), Cores: 1})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Fprintln(os.Stderr, e.Run(context.Background(), Command{Args: endless(), Outputs: []io.Writer{out}}))
		return 1
	case "environment":
		_, _ = io.WriteString(out, strings.Join(os.Environ(), "\n"))
		return 0
	}
	return 2
}

// engine returns an engine with the real ffmpeg.
func engine(t *testing.T, mode Mode) *Engine {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Options{Sandbox: mode, Self: self, Cores: 2})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// misbehaving returns an engine whose ffmpeg is helper. It runs without the sandbox:
// what the race detector adds to this binary does not fit in its limits.
func misbehaving(t *testing.T) *Engine {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Options{FFmpeg: self, FFprobe: self, Sandbox: Off, Cores: 2})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// clip makes a file with ffmpeg.
func clip(t *testing.T, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	args = append(append([]string{"-nostdin", "-v", "error"}, args...), path)
	if out, err := exec.CommandContext(t.Context(), "ffmpeg", args...).CombinedOutput(); err != nil {
		t.Fatalf("ffmpeg %q: %v\n%s", args, err, out)
	}
	return path
}

// small are the arguments of a short clip with video and audio.
func small(more ...string) []string {
	return append([]string{
		"-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=2", "-f", "lavfi", "-i", "sine=d=2", "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-c:a", "aac",
	}, more...)
}

func wantKind(t *testing.T, err error, kind weir.Kind, words ...string) {
	t.Helper()
	if err == nil || weir.KindOf(err) != kind {
		t.Fatalf("error = %v (%s), want one of kind %s", err, weir.KindOf(err), kind)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error = %q, want %q in it", err, word)
		}
	}
}

func TestNewWithoutPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := New(Options{})
	wantKind(t, err, weir.Unavailable, "ffmpeg is not installed", "apt-get install ffmpeg")

	_, err = New(Options{FFmpeg: "/bin/true", FFprobe: "/bin/true", Sandbox: "some"})
	wantKind(t, err, weir.Invalid, `"some"`, "require, best or off")

	_, err = New(Options{FFmpeg: "/bin/true", FFprobe: "/bin/true"})
	wantKind(t, err, weir.Internal, "tests must set")
}

func TestCapabilities(t *testing.T) {
	e := engine(t, Require)
	for range 2 { // asked, and remembered
		c, err := e.Capabilities(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if c.version == "" || !c.Encoder("libx264") || !c.Encoder("aac") || !c.Filter("scale") {
			t.Errorf("capabilities = %+v", c)
		}
		for _, no := range []string{"", "=", "Video", "libx263", "V....."} {
			if c.Encoder(no) || c.Filter(no) {
				t.Errorf("there is an encoder or a filter named %q", no)
			}
		}
	}
	if runs := e.Stats().Runs; runs != 3 {
		t.Errorf("ffmpeg was started %d times, want 3", runs)
	}
}

func TestCapabilitiesOfSomethingElse(t *testing.T) {
	e, err := New(Options{FFmpeg: "/bin/echo", FFprobe: "/bin/echo", Sandbox: Off})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Capabilities(t.Context())
	wantKind(t, err, weir.Unavailable, "install ffmpeg")
}
