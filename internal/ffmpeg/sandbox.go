package ffmpeg

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/weir"
)

// The sandbox is weir itself, started again as `weir sandbox … -- ffmpeg …`: it drops the rights that
// ffmpeg must not have, and then becomes ffmpeg. A process and its children never get dropped rights
// back.
//
//   - limits (this file): memory, CPU time, size and number of files, no core files;
//   - capabilities, when weir runs as root (this file);
//   - Landlock (landlock.go): no files but the named ones, no signals to others;
//   - seccomp (seccomp.go): only the system calls that codecs need, so no network and no second
//     process.

// grant lists the rights of a process.
type grant struct {
	Read   []string // files and folders
	Memory int64    // bytes
	CPU    time.Duration
	Nice   bool // has the lowest priority
}

// args returns the arguments of `weir sandbox` up to the program.
func (g grant) args(mode Mode) []string {
	args := []string{"--mode=" + string(mode), "--memory=" + strconv.FormatInt(g.Memory, 10), "--cpu=" + g.CPU.String()}
	for _, path := range g.Read {
		args = append(args, "--read="+path)
	}
	if g.Nice {
		args = append(args, "--nice")
	}
	return append(args, "--")
}

// Sandbox is `weir sandbox`: it restricts this process and becomes the program named after `--`. It
// returns only when that fails.
func Sandbox(args []string) error {
	// All of it must happen on the thread that becomes the program, and without garbage collection,
	// which needs memory.
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	g, mode, command, err := parseSandbox(args)
	if err != nil {
		return err
	}
	program, err := filepath.EvalSymlinks(command[0])
	if err != nil {
		return err
	}
	if err := g.lowerPriority(); err != nil {
		return err
	}
	if mode == Strict && landlockVersion() == 0 {
		return errors.New("landlock: this kernel does not have it; use --sandbox require")
	}
	if err := g.landlock(program); err != nil && mode.required() {
		return fmt.Errorf("landlock: %w", err)
	}
	if err := dropCapabilities(); err != nil && mode.required() {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if err := loadSeccomp(); err != nil && mode.required() {
		return fmt.Errorf("seccomp: %w; if this kernel does not have it, use --sandbox best", err)
	}
	// This comes last, because it may leave too little memory for anything else.
	if err := g.limit(); err != nil && mode.required() {
		return fmt.Errorf("limits: %w", err)
	}
	return fmt.Errorf("start %s: %w", command[0], unix.Exec(command[0], command, os.Environ()))
}

func parseSandbox(args []string) (g grant, mode Mode, command []string, err error) {
	flags := flag.NewFlagSet("sandbox", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar((*string)(&mode), "mode", string(Require), "strict, require or best")
	flags.Int64Var(&g.Memory, "memory", memoryFor(defaultPixels, 1), "bytes")
	flags.DurationVar(&g.CPU, "cpu", defaultCPU, "CPU time")
	flags.Func("read", "file or folder that may be read", func(path string) error {
		g.Read = append(g.Read, path)
		return nil
	})
	flags.BoolVar(&g.Nice, "nice", false, "let others go first")
	if err := flags.Parse(args); err != nil {
		return g, mode, nil, err
	}
	command = flags.Args()
	if !mode.required() && mode != Best {
		return g, mode, nil, weir.Errorf(weir.Invalid, "--mode: %q is not a mode; use strict, require or best", mode)
	}
	if len(command) == 0 || !filepath.IsAbs(command[0]) {
		return g, mode, nil, weir.Errorf(weir.Invalid, "name the program with its absolute path: weir sandbox … -- /usr/bin/ffmpeg …")
	}
	return g, mode, command, nil
}

// killFirst makes the kernel kill ffmpeg and not weir when the machine is out of memory.
const killFirst = "500"

// lowerPriority gives the process a lower priority than its parent has, and makes it end with its parent.
func (g grant) lowerPriority() error {
	// Each thread has a death signal of its own; the parent set that of the first thread, which ends
	// when this one becomes the program.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	if g.Nice {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceBatch) // optional
	}
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(killFirst), 0) // optional; some containers have no /proc
	return nil
}

// dropCapabilities drops all capabilities of root, if weir runs as root, but the one to open files of
// other users: the data folder may belong to one.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has, keeps [2]unix.CapUserData
	if err := unix.Capget(&header, &has[0]); err != nil {
		return err
	}
	const files = 1 << unix.CAP_DAC_OVERRIDE
	keeps[0].Effective, keeps[0].Permitted = has[0].Effective&files, has[0].Permitted&files
	if err := unix.Capset(&header, &keeps[0]); err != nil {
		return err
	}
	// From here on, starting a program gives no capabilities either.
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

const (
	maxFiles     = 256      // that may be open
	maxFileSize  = 64 << 30 // bytes
	threadStack  = 2 << 20  // bytes; SVT-AV1 starts hundreds of threads
	cpuGrace     = 5        // seconds from the signal to the end
	reservedBase = 4 << 30  // bytes of addresses that allocators reserve and do not use
	reservedCore = 8 * 64 << 20
)

// limit sets the limits of the process: one for writable memory, and a higher one for addresses,
// because allocators reserve a lot of them.
func (g grant) limit() error {
	seconds := uint64(max(g.CPU/time.Second, 1))
	memory := uint64(max(g.Memory, memoryBase/4))
	addresses := 2*memory + reservedBase + uint64(runtime.NumCPU())*reservedCore
	var errs []error
	for _, l := range []struct {
		name       string
		resource   int
		soft, hard uint64
	}{
		{"core", unix.RLIMIT_CORE, 0, 0},
		{"cpu", unix.RLIMIT_CPU, seconds, seconds + cpuGrace},
		{"fsize", unix.RLIMIT_FSIZE, maxFileSize, maxFileSize},
		{"nofile", unix.RLIMIT_NOFILE, maxFiles, maxFiles},
		{"stack", unix.RLIMIT_STACK, threadStack, threadStack},
		{"as", unix.RLIMIT_AS, addresses, addresses},
		{"data", unix.RLIMIT_DATA, memory, memory},
	} {
		var now unix.Rlimit
		if err := unix.Getrlimit(l.resource, &now); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", l.name, err))
			continue
		}
		wanted := unix.Rlimit{Cur: min(l.soft, now.Max), Max: min(l.hard, now.Max)} // the operator's own limit may be lower
		if err := unix.Setrlimit(l.resource, &wanted); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", l.name, err))
		}
	}
	return errors.Join(errs...)
}

// Kernel lists the features of this machine's kernel for the sandbox.
type Kernel struct {
	Seccomp  bool
	Landlock int // ABI version; 0 = none
}

// ReadKernel returns the features of the kernel, and changes nothing.
func ReadKernel() Kernel {
	actions, err := os.ReadFile("/proc/sys/kernel/seccomp/actions_avail")
	return Kernel{Seccomp: err == nil && strings.Contains(string(actions), "errno"), Landlock: landlockVersion()}
}

// Unconfined returns a warning for the operator if the sandbox works without Landlock; "" = it has it,
// or there is no sandbox at all.
func (e *Engine) Unconfined(kernel Kernel) string {
	if kernel.Landlock > 0 || e.mode == Off {
		return ""
	}
	return "this kernel has no Landlock: ffmpeg can read every file that weir can; with --sandbox strict, weir does not start without it"
}
