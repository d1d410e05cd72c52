package ffmpeg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/wait"
	"weir/internal/weir"
)

// endless returns arguments for an endless video in real time.
func endless() []string {
	return []string{"-re", "-f", "lavfi", "-i", "testsrc2=s=64x64:r=25", "-c:v", "rawvideo", "-f", "rawvideo", "pipe:3"}
}

func TestRunFillsOutputsAndReportsProgress(t *testing.T) {
	e := engine(t, Require)
	var video, audio bytes.Buffer
	var reports []Progress
	err := e.Run(t.Context(), Command{
		Args: []string{
			"-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=2", "-f", "lavfi", "-i", "sine=d=2",
			"-map", "0:v", "-c:v", "rawvideo", "-pix_fmt", "gray", "-f", "rawvideo", "pipe:3", "-map", "1:a", "-c:a", "pcm_s16le", "-ar", "8000", "-f", "s16le", "pipe:4",
		},
		Outputs:  []io.Writer{&video, &audio},
		Threads:  2,
		Priority: Interactive,
		Progress: func(p Progress) { reports = append(reports, p) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := video.Len(), 50*320*180; got != want {
		t.Errorf("%d bytes of video, want %d", got, want)
	}
	if got, want := audio.Len(), 2*8000*2; got != want {
		t.Errorf("%d bytes of audio, want %d", got, want)
	}
	last := reports[len(reports)-1]
	if last.Frame != 50 || last.Time < 1900*time.Millisecond || last.Time > 2*time.Second {
		t.Errorf("last progress = %+v", last)
	}
	if s := e.Stats(); s.Runs != 1 || s.Failures != 0 || s.Busy != 0 {
		t.Errorf("stats = %+v", s)
	}
}

// A brief run does not wait for the cores of others.
func TestBriefRun(t *testing.T) {
	e := engine(t, Require)
	for range e.Stats().Cores {
		release, err := e.ledger.acquire(t.Context(), Batch)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
	}
	ctx, cancel := context.WithCancel(t.Context())
	run := func(brief bool) error {
		return e.Run(ctx, Command{
			Args:    []string{"-f", "lavfi", "-i", "testsrc2=s=64x64:r=25:d=1", "-c:v", "rawvideo", "-f", "rawvideo", "pipe:3"},
			Outputs: []io.Writer{io.Discard}, Priority: Interactive, Brief: brief,
		})
	}
	if err := run(true); err != nil {
		t.Error(err)
	}
	done := make(chan error, 1)
	go func() { done <- run(false) }()
	wait.Until(t, "the run that is not brief waits", func() bool { return e.Stats().Waiting[Interactive] > 0 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a run that is not brief: %v", err)
	}
}

func TestRunReadsStdin(t *testing.T) {
	e := engine(t, Require)
	path := clip(t, "a.mkv", small()...)
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = e.Run(t.Context(), Command{
		Args:    append(InputOptions(), "-i", "pipe:0", "-map", "0:v", "-fps_mode", "passthrough", "-pix_fmt", "gray", "-f", "rawvideo", "pipe:3"),
		Stdin:   file,
		Outputs: []io.Writer{&out},
	})
	if err != nil || out.Len() != 50*320*180 {
		t.Errorf("%d bytes, %v", out.Len(), err)
	}
	if err := file.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("close = %v: Run did not close its input", err)
	}
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestEnoughInputIsNoError(t *testing.T) {
	err := engine(t, Require).Run(t.Context(), Command{
		Args:    []string{"-f", "rawvideo", "-s", "64x64", "-pix_fmt", "gray", "-i", "pipe:0", "-frames:v", "1", "-f", "rawvideo", "pipe:3"},
		Stdin:   zeros{},
		Outputs: []io.Writer{io.Discard},
	})
	if err != nil {
		t.Error(err)
	}
}

func TestErrorOfInputEndsRun(t *testing.T) {
	cause := weir.Errorf(weir.Upstream, "the connection is closed")
	err := misbehaving(t).Run(t.Context(), Command{
		Args:  []string{"helper", "hang"},
		Stdin: io.MultiReader(strings.NewReader("something"), failing{cause}),
	})
	if !errors.Is(err, cause) {
		t.Errorf("error = %v, want %v", err, cause)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestErrorOfOutputEndsRun(t *testing.T) {
	cause := weir.Errorf(weir.Full, "no space")
	err := misbehaving(t).Run(t.Context(), Command{Args: []string{"helper", "pour"}, Outputs: []io.Writer{failing{cause}, io.Discard}})
	if !errors.Is(err, cause) {
		t.Errorf("error = %v, want %v", err, cause)
	}
}

// signalled closes a channel at the first byte.
type signalled struct {
	once  sync.Once
	first chan struct{}
	bytes.Buffer
}

func newSignalled() *signalled { return &signalled{first: make(chan struct{})} }

func (s *signalled) Write(p []byte) (int, error) {
	defer s.once.Do(func() { close(s.first) })
	return s.Buffer.Write(p)
}

func TestCancelKillsAllProcesses(t *testing.T) {
	for _, hangs := range []bool{true, false} {
		t.Run(fmt.Sprint("hangs ", hangs), func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			cause := errors.New("changed my mind")
			out := newSignalled()
			args := []string{"helper", "leave-child"}
			if hangs {
				args = append(args, "too")
				go func() { <-out.first; cancel(cause) }()
			}
			err := misbehaving(t).Run(ctx, Command{Args: args, Outputs: []io.Writer{out}})
			if hangs && !errors.Is(err, cause) || !hangs && err != nil {
				t.Errorf("error = %v", err)
			}
			child, err := strconv.Atoi(out.String())
			if err != nil {
				t.Fatal(err)
			}
			wait.Until(t, "the child of the child has ended", func() bool { return ended(child) })
		})
	}
}

// ended reports whether a process has ended; it may still be a zombie.
func ended(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(status, []byte(") Z "))
}

func TestBlockedReaderReturns(t *testing.T) {
	r, w := io.Pipe() // is never written to
	ctx, cancel := context.WithCancel(t.Context())
	out := newSignalled()
	go func() { <-out.first; cancel() }()
	err := misbehaving(t).Run(ctx, Command{Args: []string{"helper", "hang"}, Stdin: r, Outputs: []io.Writer{out}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want %v", err, context.Canceled)
	}
	if _, err := w.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("write after the run = %v, want %v", err, io.ErrClosedPipe)
	}
}

func TestBlockedWriterReturns(t *testing.T) {
	r, w := io.Pipe() // read once
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	go func() {
		_, _ = r.Read(make([]byte, 1))
		cancel(cause)
	}()
	if err := misbehaving(t).Run(ctx, Command{Args: []string{"helper", "pour"}, Outputs: []io.Writer{w}}); !errors.Is(err, cause) {
		t.Errorf("error = %v, want %v", err, cause)
	}
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, cause) {
		t.Errorf("the reader got %v, want %v", err, cause)
	}
}

func TestStall(t *testing.T) {
	err := misbehaving(t).Run(t.Context(), Command{Args: []string{"helper", "hang"}, Outputs: []io.Writer{io.Discard}, Stall: 50 * time.Millisecond})
	wantKind(t, err, weir.Internal, "execution timeout", "no progress for 50ms")
	if ReasonOf(err) != stalled {
		t.Errorf("reason = %q, want %q", ReasonOf(err), stalled)
	}
}

// slow blocks longer than the watchdog waits, and then fails.
type slow struct{ err error }

func (s slow) Read([]byte) (int, error)  { <-time.After(3 * time.Second); return 0, s.err }
func (s slow) Write([]byte) (int, error) { <-time.After(3 * time.Second); return 0, s.err }

func TestWaitingForTheCallerIsNoStall(t *testing.T) {
	cause := errors.New("after a long time")
	for name, slowly := range map[string]func(s *pipes, childEnd, ourEnd *os.File){
		"input": func(s *pipes, _, ourEnd *os.File) {
			s.stdin = ourEnd
			s.copyIn(slow{cause})
		},
		"output": func(s *pipes, childEnd, ourEnd *os.File) {
			_, _ = ourEnd.WriteString("x")
			s.copyOut(slow{cause}, childEnd)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			synctest.Test(t, func(t *testing.T) {
				ctx, abort := context.WithCancelCause(t.Context())
				s := &pipes{abort: abort, drained: make(chan struct{}), finished: make(chan struct{})}
				s.guards.Go(func() { s.guard(ctx, process{stall: time.Second}) })
				slowly(s, r, w)
				s.guards.Wait()
				if err := context.Cause(ctx); err != cause {
					t.Errorf("error = %v, want %v", err, cause)
				}
			})
		})
	}
}

// children returns the processes that this one has started.
func children(t *testing.T) []int { t.Helper(); return childrenOf(t, "self") }

func childrenOf(t *testing.T, pid string) []int {
	t.Helper()
	var found []int
	tasks, err := filepath.Glob("/proc/" + pid + "/task/*/children")
	if err != nil || len(tasks) == 0 {
		t.Skipf("this kernel does not list children: %v", err)
	}
	for _, task := range tasks {
		list, _ := os.ReadFile(task) // the thread may have ended
		for word := range strings.FieldsSeq(string(list)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, pid)
		}
	}
	return found
}

// atWork runs the real ffmpeg and calls do when it has written something.
func atWork(t *testing.T, c Command, do func(pid int)) error {
	t.Helper()
	before := children(t)
	out := newSignalled()
	c.Outputs = []io.Writer{out}
	done := make(chan error, 1)
	e := engine(t, Require)
	go func() { done <- e.Run(t.Context(), c) }()
	select {
	case <-out.first:
	case err := <-done:
		return err
	}
	for _, pid := range children(t) {
		if !slices.Contains(before, pid) {
			do(pid)
		}
	}
	return <-done
}

// disturb sends a signal to a running ffmpeg.
func disturb(t *testing.T, stall time.Duration, signal unix.Signal) error {
	t.Helper()
	return atWork(t, Command{Args: endless(), Stall: stall}, func(pid int) {
		if err := unix.Kill(pid, signal); err != nil {
			t.Error(err)
		}
	})
}

func TestFFmpegKilled(t *testing.T) {
	err := disturb(t, 0, unix.SIGKILL)
	wantKind(t, err, weir.Internal, "internal error processing file", "killed")
	if ReasonOf(err) != killed {
		t.Errorf("reason = %q, want %q", ReasonOf(err), killed)
	}
}

func TestFFmpegCrashed(t *testing.T) {
	err := disturb(t, 0, unix.SIGSEGV)
	if ReasonOf(err) != crashed {
		t.Errorf("reason = %q, want %q (%v)", ReasonOf(err), crashed, err)
	}
}

func TestFFmpegHung(t *testing.T) {
	err := disturb(t, 2*time.Second, unix.SIGSTOP)
	wantKind(t, err, weir.Internal, "execution timeout")
	if ReasonOf(err) != stalled {
		t.Errorf("reason = %q, want %q", ReasonOf(err), stalled)
	}
}

// When weir is killed, its ffmpeg ends too.
func TestFFmpegEndsWithWeir(t *testing.T) {
	for _, mode := range []Mode{Require, Off} {
		t.Run(string(mode), func(t *testing.T) {
			before := children(t)
			out := newSignalled()
			done := make(chan error, 1)
			outer := misbehaving(t)
			go func() {
				done <- outer.Run(t.Context(), Command{Args: []string{"helper", "engine", string(mode)}, Outputs: []io.Writer{out}})
			}()
			<-out.first
			inner := slices.DeleteFunc(children(t), func(pid int) bool { return slices.Contains(before, pid) })
			if len(inner) != 1 {
				t.Fatalf("children = %v, want one", inner)
			}
			theirs := childrenOf(t, strconv.Itoa(inner[0]))
			if len(theirs) != 1 {
				t.Fatalf("children of the other weir = %v, want one", theirs)
			}
			if err := unix.Kill(inner[0], unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if err := <-done; ReasonOf(err) != killed {
				t.Errorf("error = %v", err)
			}
			wait.Until(t, "ffmpeg has ended", func() bool { return ended(theirs[0]) })
		})
	}
}

func TestEnvironmentHasNoSecrets(t *testing.T) {
	t.Setenv("WEIR_SECRET", "s3cret")
	var out bytes.Buffer
	if err := misbehaving(t).Run(t.Context(), Command{Args: []string{"helper", "environment"}, Outputs: []io.Writer{&out}}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(out.String()) {
		name, _, _ := strings.Cut(line, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{"GLIBC_TUNABLES", "LANG", "PATH"}; !slices.Equal(names, want) {
		t.Errorf("environment = %v, want %v", names, want)
	}
}

func TestBadInput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret-name.bin")
	if err := os.WriteFile(path, []byte("this is no film"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := engine(t, Require).Run(t.Context(), Command{
		Args: append(InputOptions(), "-i", "file:"+path, "-f", "null", "-"),
		Read: []string{path},
	})
	wantKind(t, err, weir.Invalid, "failed to probe or open file", "not a video or audio file")
	if messages := errorMessages(t, err); strings.Contains(messages, "secret-name") || strings.Contains(messages, "/") {
		t.Errorf("the message shows a path: %q", messages)
	}
}

func errorMessages(t *testing.T, err error) string {
	t.Helper()
	e, ok := errors.AsType[*weir.Error](err)
	if !ok {
		t.Fatalf("%v is not a weir.Error", err)
	}
	return strings.Join(e.Messages, "; ")
}

func TestMissingEncoder(t *testing.T) {
	err := engine(t, Require).Run(t.Context(), Command{
		Args: []string{"-f", "lavfi", "-i", "testsrc2=d=1", "-c:v", "libx263", "-f", "null", "-"},
	})
	if ReasonOf(err) != missing || weir.KindOf(err) != weir.Unavailable {
		t.Errorf("error = %v, want a missing encoder", err)
	}
}

func TestProgramThatCannotStart(t *testing.T) {
	e, err := New(Options{FFmpeg: "/bin/true", FFprobe: "/bin/true", Self: "/nonexistent/weir", Sandbox: Require})
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	err = e.Run(t.Context(), Command{Stdin: r, Outputs: []io.Writer{io.Discard}})
	if weir.KindOf(err) != weir.Internal || ReasonOf(err) != unknown {
		t.Errorf("error = %v", err)
	}
	if _, err := w.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("input is still open: %v", err)
	}
}

func TestNoFilesAreLeftOpen(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	e := misbehaving(t)
	run := func() {
		_ = e.Run(t.Context(), Command{Args: []string{"helper", "say", "x"}, Stdin: strings.NewReader("x"), Outputs: []io.Writer{io.Discard, io.Discard}})
		_ = e.Run(t.Context(), Command{Args: []string{"helper", "pour"}, Outputs: []io.Writer{failing{io.ErrShortWrite}}})
	}
	run()
	before := count()
	for range 5 {
		run()
	}
	if after := count(); after > before {
		t.Errorf("%d files are open, %d were before", after, before)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}
