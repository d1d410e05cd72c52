package ffmpeg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is one start of ffmpeg or ffprobe.
type process struct {
	program  string
	args     []string
	grant    grant
	stdin    io.Reader
	stdout   io.Writer   // nil = discard
	outputs  []io.Writer // file descriptors 3, 4, …
	progress func(Progress)
	logged   func(error)     // see Command.Logged
	levels   bool            // lines on stderr contain their level
	damage   *Damage         // see Command.Damage
	demote   <-chan struct{} // see Command.Demote
	stall    time.Duration   // 0 = no watchdog
	used     *time.Duration  // gets the CPU time; may be nil
}

// niceBatch is the lowest priority of the kernel.
const niceBatch = 19

// errStalled is the reason when the watchdog ends a process.
var errStalled = errors.New("no progress")

// execute runs the process to its end. When it returns, no child process and no pipe is left.
func (e *Engine) execute(ctx context.Context, p process) error {
	e.runs.Add(1)
	err := e.run(ctx, p)
	if err != nil {
		e.failures.Add(1)
	}
	return err
}

func (e *Engine) run(ctx context.Context, p process) error {
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)

	argv := append([]string{p.program}, p.args...)
	if e.mode != Off {
		argv = append(append([]string{e.self, "sandbox"}, p.grant.args(e.mode)...), argv...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = environment()
	// A session of its own has no terminal, and its process group can be killed as a whole. It ends
	// with weir, also when weir is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }

	s := &pipes{abort: abort, drained: make(chan struct{}), finished: make(chan struct{})}
	defer s.close(p)
	said := tail{levels: p.levels}
	if err := s.connect(cmd, p, &said); err != nil {
		return fmt.Errorf("make pipes for %s: %w", filepath.Base(p.program), err)
	}

	// The kernel sends the signal of Pdeathsig when the thread that started the child ends, so this
	// goroutine keeps its thread until the child has ended.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	name := filepath.Base(p.program)
	if err := cmd.Start(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return diagnose(name, err, &said, nil)
	}
	if e.mode == Off && p.grant.Nice {
		_ = unix.Setpriority(unix.PRIO_PROCESS, cmd.Process.Pid, niceBatch) // optional
	}
	s.start(ctx, p)
	s.guards.Go(func() {
		select {
		case <-p.demote:
			_ = unix.Setpriority(unix.PRIO_PGRP, cmd.Process.Pid, niceBatch) // all its threads; optional
		case <-s.finished:
		}
	})

	// The group is killed while its first process is still a zombie, so that its number can't
	// belong to another one yet. Children that it left would keep the pipes open.
	for unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	exit := cmd.Wait()
	s.wait(p)
	if p.used != nil {
		*p.used = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}

	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errStalled):
		return timedOut(name, "made no progress for "+p.stall.String(), &said)
	case cause != nil:
		return cause
	case exit != nil && e.mode != Off && usedUp(cmd.ProcessState, p.grant.CPU):
		// ffmpeg takes the kernel's signal for a request to stop and writes no message.
		return timedOut(name, "used up its CPU time of "+p.grant.CPU.String(), &said)
	}
	if exit != nil {
		return diagnose(name, exit, &said, p.grant.Read)
	}
	if p.damage != nil {
		*p.damage = said.damage
	}
	if p.logged != nil && len(said.lines()) > 0 {
		p.logged(diagnose(name, nil, &said, p.grant.Read))
	}
	return nil
}

// environment has no variables of weir's own, because they may contain keys. With huge pages, where
// glibc and the kernel support them, encoding takes 3 to 4 % less CPU time and 7 % more
// memory.
func environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"}
}

// usedUp reports whether a process ended at its limit of CPU time. The kernel counts that time in
// two ways, which differ by a share, and by what a busy machine has not counted yet.
func usedUp(state *os.ProcessState, limit time.Duration) bool {
	return state.UserTime()+state.SystemTime() >= limit-max(limit/20, 300*time.Millisecond)
}

// pipes are the pipes between weir and a process, and the goroutines at this end.
type pipes struct {
	abort context.CancelCauseFunc // ends the run

	childEnds []*os.File // ends that the child inherits
	ourEnds   []*os.File
	copiers   []func() // the goroutines, started once the child runs
	work      sync.WaitGroup
	guards    sync.WaitGroup

	stdin    *os.File      // our end of stdin; nil = none
	moved    atomic.Int64  // counts reads, writes and progress
	outside  atomic.Int32  // goroutines that wait for the caller, not for the process
	finished chan struct{} // closed when the process has ended
	drained  chan struct{} // closed when all its output was read
}

// connect makes the pipes and gives the child its ends.
func (s *pipes) connect(cmd *exec.Cmd, p process, said *tail) error {
	from := func(take func(*os.File)) (*os.File, error) { // a pipe that the child writes
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		s.ourEnds, s.childEnds = append(s.ourEnds, r), append(s.childEnds, w)
		s.copiers = append(s.copiers, func() { take(r) })
		return w, nil
	}
	stderr, err := from(func(r *os.File) { said.read(r) })
	if err != nil {
		return err
	}
	cmd.Stderr = stderr
	if p.stdout != nil {
		if cmd.Stdout, err = from(func(r *os.File) { s.copyOut(p.stdout, r) }); err != nil {
			return err
		}
	}
	for _, output := range p.outputs {
		w, err := from(func(r *os.File) { s.copyOut(output, r) })
		if err != nil {
			return err
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, w)
	}
	w, err := from(func(r *os.File) {
		if readProgress(r, func() { s.moved.Add(1) }, p.progress) != nil {
			_, _ = io.Copy(io.Discard, r) // a line of a megabyte is not ffmpeg's
		}
	})
	if err != nil {
		return err
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, w)
	if p.stdin == nil {
		return nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	s.childEnds, s.ourEnds, s.stdin = append(s.childEnds, r), append(s.ourEnds, w), w
	cmd.Stdin = r
	s.copiers = append(s.copiers, func() { s.copyIn(p.stdin) })
	return nil
}

// start starts the goroutines. The child has its ends of the pipes now.
func (s *pipes) start(ctx context.Context, p process) {
	closeFiles(s.childEnds)
	s.childEnds = nil
	for _, f := range s.copiers {
		s.work.Go(f)
	}
	s.guards.Go(func() { s.guard(ctx, p) })
}

// wait waits for the goroutines after the process has ended.
func (s *pipes) wait(p process) {
	close(s.finished)
	if s.stdin != nil {
		_ = s.stdin.Close()
	}
	closeReader(p.stdin)
	s.work.Wait()
	close(s.drained)
	s.guards.Wait()
}

func (s *pipes) close(p process) {
	closeReader(p.stdin)
	closeFiles(s.childEnds)
	closeFiles(s.ourEnds)
}

func closeReader(r io.Reader) {
	if closer, ok := r.(io.Closer); ok {
		_ = closer.Close()
	}
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

const bufferSize = 128 << 10

// copyOut copies what the process writes.
func (s *pipes) copyOut(w io.Writer, r *os.File) {
	buffer := make([]byte, bufferSize)
	for {
		n, err := r.Read(buffer)
		if n > 0 {
			s.moved.Add(1)
			s.outside.Add(1)
			_, werr := w.Write(buffer[:n])
			s.outside.Add(-1)
			s.moved.Add(1)
			if werr != nil {
				s.abort(werr)
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// copyIn writes to the process. It is no error if the process closes its end early: it needs no
// more, or its exit status tells why.
func (s *pipes) copyIn(r io.Reader) {
	defer s.stdin.Close()
	buffer := make([]byte, bufferSize)
	for {
		s.outside.Add(1)
		n, err := r.Read(buffer)
		s.outside.Add(-1)
		s.moved.Add(1)
		if n > 0 {
			if _, werr := s.stdin.Write(buffer[:n]); werr != nil {
				if !errors.Is(werr, syscall.EPIPE) && !errors.Is(werr, fs.ErrClosed) {
					s.abort(werr)
				}
				return
			}
			s.moved.Add(1)
		}
		if err != nil {
			select {
			case <-s.finished: // it was closed to end the wait
			default:
				if err != io.EOF {
					s.abort(err)
				}
			}
			return
		}
	}
}

// guard ends a process that neither reads, writes nor makes progress, unless it waits for the
// caller. When the run is cancelled, guard closes the pipes, so that their readers return.
func (s *pipes) guard(ctx context.Context, p process) {
	var tick <-chan time.Time
	if p.stall > 0 {
		ticker := time.NewTicker(max(p.stall/8, time.Millisecond))
		defer ticker.Stop()
		tick = ticker.C
	}
	last, since := s.moved.Load(), time.Now()
	for {
		select {
		case <-s.drained:
			return
		case <-ctx.Done():
			for _, w := range append([]io.Writer{p.stdout}, p.outputs...) {
				if pipe, ok := w.(*io.PipeWriter); ok {
					_ = pipe.CloseWithError(context.Cause(ctx))
				}
			}
			return
		case now := <-tick:
			if moved := s.moved.Load(); moved != last || s.outside.Load() > 0 {
				last, since = moved, now
			}
			if now.Sub(since) >= p.stall {
				s.abort(errStalled)
			}
		}
	}
}
