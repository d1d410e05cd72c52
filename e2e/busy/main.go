// Command busy runs the end-to-end tests on a machine that is too busy for them: beside a busy loop
// on every core, and with single processes of theirs stopped at random for 1 to 8 s. Tests that
// judge by the clock fail here. It prints how often each test ran and failed, and why.
//
// make soak-busy runs it, with the two weirs that make test drives. Its flags are below; the seed of
// a run is printed, and repeats the choices of a run, though not what they meet.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"weir/e2e/harness"
)

type options struct {
	packages string
	run      string
	rounds   int
	seed     uint64
	loops    int
	stops    bool
	parallel int
	log      string
}

func main() {
	var o options
	flag.StringVar(&o.packages, "packages", "./e2e/...", "the packages, separated by blanks")
	flag.StringVar(&o.run, "run", "", "only tests that match, as of go test")
	flag.IntVar(&o.rounds, "rounds", 1, "how often every test runs")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of what is stopped, and when")
	flag.IntVar(&o.loops, "loops", runtime.NumCPU(), "the number of busy loops")
	flag.BoolVar(&o.stops, "stops", true, "stop processes")
	flag.IntVar(&o.parallel, "parallel", 3, "how many packages, and tests of a package, run at once")
	flag.StringVar(&o.log, "log", "", "a file for all that the tests print; default: a temporary one")
	spin := flag.Bool("spin", false, "be one of the busy loops")
	flag.Parse()
	if *spin {
		for {
			runtime.Gosched()
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	failures, err := soak(ctx, o)
	stop()
	switch {
	case err != nil:
		slog.Error("the soak ended", "err", err)
		os.Exit(2)
	case failures > 0:
		os.Exit(1)
	}
}

// soak runs the rounds and prints the table. It returns the number of failures.
func soak(ctx context.Context, o options) (failures int, err error) {
	log, err := openLog(o.log)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	fmt.Printf("seed %d, %d busy loops, output in %s\n", o.seed, o.loops, log.Name())
	ctx, end := context.WithCancel(ctx)
	defer end()
	for range o.loops {
		loop := exec.CommandContext(ctx, os.Args[0], "-spin")
		if err := loop.Start(); err != nil {
			return 0, err
		}
		defer func() { end(); _ = loop.Wait() }()
	}
	results := tally{}
	for round := range o.rounds {
		if ctx.Err() != nil {
			break
		}
		began := time.Now()
		stopped, err := runTests(ctx, o, rand.New(rand.NewPCG(o.seed, uint64(round))), log, results)
		if err != nil {
			return 0, err
		}
		fmt.Printf("round %d of %d: %v, %d processes stopped\n", round+1, o.rounds, time.Since(began).Round(time.Second), stopped)
	}
	fmt.Print(results)
	return results.failures(), nil
}

func openLog(path string) (*os.File, error) {
	if path == "" {
		return os.CreateTemp("", "weir-soak-busy-*.log")
	}
	return os.Create(path)
}

// runTests runs all tests once, stops processes meanwhile, and returns how many it stopped.
func runTests(ctx context.Context, o options, random *rand.Rand, log io.Writer, results tally) (stopped int, err error) {
	args := []string{
		"test", "-json", "-vet=off", "-count=1", "-shuffle=on", "-timeout=180m",
		fmt.Sprint("-p=", o.parallel), fmt.Sprint("-parallel=", o.parallel),
	}
	if o.run != "" {
		args = append(args, "-run", o.run)
	}
	suspended, err := os.MkdirTemp("", "weir-soak-busy-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(suspended)
	cmd := exec.CommandContext(ctx, "go", append(args, strings.Fields(o.packages)...)...)
	cmd.Env = append(os.Environ(), harness.SuspendedDir+"="+suspended)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = log
	output, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	stopping, end := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if o.stops {
			stopped = stopProcesses(stopping, cmd.Process.Pid, suspended, random)
		}
	}()
	lines := bufio.NewReader(output)
	for err == nil {
		var line []byte
		line, err = lines.ReadBytes('\n')
		results.note(line)
		_, _ = log.Write(line)
	}
	end()
	<-done
	if exit, ok := errors.AsType[*exec.ExitError](cmd.Wait()); ok && exit.ExitCode() != 1 {
		return stopped, exit // 1 is a failed test
	}
	return stopped, nil
}

// stopProcesses stops one process below a process after another, until the context ends. Those that a
// test has stopped itself, which have a file in a folder, go on when the test wants it.
func stopProcesses(ctx context.Context, parent int, suspended string, random *rand.Rand) (stopped int) {
	between := func(low, high time.Duration) <-chan time.Time {
		return time.After(low + time.Duration(random.Int64N(int64(high-low))))
	}
	for {
		select {
		case <-ctx.Done():
			return stopped
		case <-between(time.Second, 4*time.Second):
		}
		processes := harness.Children(parent)
		if len(processes) == 0 {
			continue
		}
		pid := processes[random.IntN(len(processes))]
		if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err != nil || isBuilding(strings.TrimSpace(string(name))) {
			continue
		}
		if syscall.Kill(pid, syscall.SIGSTOP) != nil {
			continue // it has just ended
		}
		stopped++
		select {
		case <-ctx.Done():
		case <-between(time.Second, 8*time.Second):
		}
		if _, err := os.Stat(filepath.Join(suspended, strconv.Itoa(pid))); err != nil {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
}

// isBuilding reports whether a program makes tests and is no part of them.
func isBuilding(program string) bool {
	return program == "go" || program == "compile" || program == "link" || program == "asm" || program == "cgo"
}
