package ffmpeg

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/wait"
	"weir/internal/weir"
)

// confined runs a system program in the sandbox and returns its output.
func confined(t *testing.T, g grant, program string, args ...string) (string, error) {
	t.Helper()
	return runProgram(t, engine(t, Require), g, program, args...)
}

func runProgram(t *testing.T, e *Engine, g grant, program string, args ...string) (string, error) {
	t.Helper()
	if g.Memory == 0 {
		g.Memory = memoryFor(0, 1)
	}
	if g.CPU == 0 {
		g.CPU = time.Minute
	}
	var out bytes.Buffer
	err := e.execute(t.Context(), process{program: program, args: args, grant: g, stdout: &out})
	return out.String(), err
}

// bytesOf returns arguments that copy the bytes of an input.
func bytesOf(input string) []string {
	return []string{"-f", "data", "-i", input, "-map", "0", "-c", "copy", "-f", "data", "pipe:3"}
}

// copied returns the bytes that ffmpeg reads from an input.
func copied(t *testing.T, mode Mode, input string, read ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := engine(t, mode).Run(t.Context(), Command{Args: bytesOf(input), Read: read, Outputs: []io.Writer{&out}})
	return out.String(), err
}

func TestSandboxHasNoNetwork(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	accepted := make(chan struct{}, 10)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- struct{}{}
			_, _ = io.WriteString(conn, "hello")
			_ = conn.Close()
		}
	}()
	address := "tcp://" + listener.Addr().String()
	if got, err := copied(t, Off, address); err != nil || got != "hello" {
		t.Fatalf("without the sandbox: %q, %v; the test shows nothing", got, err)
	}
	if got, err := copied(t, Require, address); err == nil || got != "" {
		t.Errorf("in the sandbox: %q, %v, want an error", got, err)
	}
	_ = listener.Close()
	connections := 0
	for range accepted {
		connections++
	}
	if connections != 1 {
		t.Errorf("%d connections, want one", connections)
	}
}

func TestSandboxHasNoSockets(t *testing.T) {
	const script = `for $domain (1, 2, 10, 16, 17, 38, 40) { for $type (1, 2, 3) { print "$domain/$type " if socket(S, $domain, $type, 0) } } print "done"`
	if got, err := runProgram(t, engine(t, Off), grant{}, "/usr/bin/perl", "-e", script); err != nil || !strings.Contains(got, "2/1 ") {
		t.Fatalf("without the sandbox: %q, %v; the test shows nothing", got, err)
	}
	if got, err := confined(t, grant{}, "/usr/bin/perl", "-e", script); err != nil || got != "done" {
		t.Errorf("in the sandbox: %q, %v, want no socket", got, err)
	}
}

func needLandlock(t *testing.T) {
	t.Helper()
	if ReadKernel().Landlock == 0 {
		t.Skip("this kernel has no Landlock: files are not confined here")
	}
}

func TestSandboxReadsOnlyWhatIsNamed(t *testing.T) {
	needLandlock(t)
	dir, other := t.TempDir(), t.TempDir()
	named, unnamed := filepath.Join(dir, "named"), filepath.Join(dir, "unnamed")
	for _, path := range []string{named, unnamed, filepath.Join(other, "file")} {
		if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(unnamed, filepath.Join(other, "link")); err != nil {
		t.Fatal(err)
	}
	if got, err := copied(t, Off, "file:"+unnamed); err != nil || got != "content" {
		t.Fatalf("without the sandbox: %q, %v; the test shows nothing", got, err)
	}
	for path, may := range map[string]bool{
		named:                        true,
		unnamed:                      false,
		filepath.Join(other, "file"): true,
		filepath.Join(other, "link"): false,
		"/etc/passwd":                false,
		"/proc/self/environ":         false,
		"/proc/1/status":             false,
		"/proc/self/root" + unnamed:  false,
		filepath.Join("/proc/self/cwd/", unnamed): false,
	} {
		got, err := copied(t, Require, "file:"+path, named, other)
		if may && (err != nil || got != "content") {
			t.Errorf("%s: %q, %v, want its content", path, got, err)
		}
		if !may && (err == nil || got != "") {
			t.Errorf("%s could be read: %.40q, %v", path, got, err)
		}
	}
	if unix.Access("/etc/shadow", unix.R_OK) == nil {
		if got, err := copied(t, Require, "file:/etc/shadow"); err == nil || got != "" {
			t.Error("/etc/shadow could be read")
		}
	}
}

func TestSandboxWritesNoFiles(t *testing.T) {
	needLandlock(t)
	readable := t.TempDir()
	for _, path := range []string{filepath.Join(readable, "a"), filepath.Join(t.TempDir(), "b"), "/tmp/weir-sandbox-test-c"} {
		err := engine(t, Require).Run(t.Context(), Command{
			Args: []string{"-f", "lavfi", "-i", "testsrc2=s=64x64:d=0.2", "-f", "rawvideo", "file:" + path}, Read: []string{readable},
		})
		if err == nil {
			t.Errorf("%s could be written", path)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s was written", path)
			_ = os.Remove(path)
		}
	}
}

func TestSandboxHasOneProcess(t *testing.T) {
	got, err := confined(t, grant{}, "/usr/bin/perl", "-e", `$pid = fork(); print defined $pid ? "forked" : "no: $!"; print system("/bin/true") == 0 ? " started" : ""`)
	if err != nil || !strings.HasPrefix(got, "no: ") || strings.Contains(got, "started") {
		t.Errorf("fork: %q, %v, want it refused", got, err)
	}
}

// The calls that an attacker could use, by their numbers on amd64.
func TestSandboxRefusesCalls(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the numbers of the calls are amd64's")
	}
	calls := map[string]int{
		"ptrace": unix.SYS_PTRACE, "mount": unix.SYS_MOUNT, "bpf": 321, "keyctl": 250, "io_uring_setup": 425, "memfd_create": 319, "unshare": 272,
		"setns": 308, "userfaultfd": 323, "perf_event_open": 298, "process_vm_readv": 310, "pidfd_open": 434, "kexec_load": 246, "init_module": 175,
		"shmget": 29, "socketpair": 53, "fork": 57, "vfork": 58, "kill": 62, "setuid": 105, "chroot": 161, "name_to_handle_at": 303, "execveat": 322,
		"personality": 135, "setpriority": 141, "clone as fork": -1, "tgkill of the parent": -2, "prlimit of the parent": -3, "TIOCSTI": -4, "PR_SET_DUMPABLE": -5,
	}
	var script strings.Builder
	for name, number := range calls {
		switch number {
		case -1:
			fmt.Fprintf(&script, `$r = syscall(56, 17, 0, 0, 0, 0); exit if $r == 0; print "%s\n" if $r > 0 || $! != 1;`, name)
		case -2:
			fmt.Fprintf(&script, `$r = syscall(234, %d, %d, 0); print "%s\n" if $r >= 0 || $! != 1;`, os.Getpid(), os.Getpid(), name)
		case -3:
			fmt.Fprintf(&script, `$r = syscall(302, %d, 4, 0, 0); print "%s\n" if $r >= 0 || $! != 1;`, os.Getpid(), name)
		case -4:
			fmt.Fprintf(&script, `$r = syscall(16, 0, 0x5412, 0); print "%s\n" if $r >= 0 || $! != 1;`, name)
		case -5:
			fmt.Fprintf(&script, `$r = syscall(157, 4, 1, 0, 0, 0); print "%s\n" if $r >= 0 || $! != 1;`, name)
		default:
			fmt.Fprintf(&script, `$r = syscall(%d, 0, 0, 0, 0, 0); exit if $r == 0 && %d == 57; print "%s\n" if $r >= 0 || $! != 1;`, number, number, name)
		}
	}
	script.WriteString(`$r = syscall(435, 0, 0); print "clone3: $!\n" if $r >= 0 || $! != 38; print "done"`)
	if got, err := confined(t, grant{}, "/usr/bin/perl", "-e", script.String()); err != nil || got != "done" {
		t.Errorf("these calls were not refused: %s %v", got, err)
	}
}

func TestSandboxLimits(t *testing.T) {
	var out bytes.Buffer
	e := engine(t, Require)
	g := grant{Memory: 3 << 30, CPU: 90 * time.Second, Nice: true}
	if err := e.execute(t.Context(), process{program: "/usr/bin/perl", grant: g, stdout: &out, args: []string{"-e", `
		open F, "/proc/self/status"; print grep /^(CapEff|CapPrm|CapInh|NoNewPrivs|Seccomp):/, <F>;
		open F, "/proc/self/stat"; @f = split / /, <F>; print "nice: $f[18]\n"`}}); err != nil {
		t.Fatal(err)
	}
	ulimits, err := confined(t, g, "/bin/sh", "-c", "ulimit -c; ulimit -t; ulimit -n; ulimit -d; ulimit -H -n; ulimit -s")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("0\n90\n%d\n%d\n%d\n%d\n", maxFiles, 3<<20, maxFiles, threadStack>>10); ulimits != want {
		t.Errorf("limits = %q, want %q", ulimits, want)
	}
	for _, want := range []string{"NoNewPrivs:\t1\n", "Seccomp:\t2\n", "nice: 19\n", "CapInh:\t0000000000000000\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("state = %q, want %q in it", out.String(), want)
		}
	}
	for line := range strings.Lines(out.String()) {
		if bits, found := strings.CutPrefix(line, "CapEff:\t"); found {
			if has, err := strconv.ParseUint(strings.TrimSpace(bits), 16, 64); err != nil || has&^(1<<unix.CAP_DAC_OVERRIDE) != 0 {
				t.Errorf("capabilities = %s", bits)
			}
		}
	}
}

func TestFFmpegOutOfMemory(t *testing.T) {
	// The filter keeps a thousand frames of 50 MB.
	err := engine(t, Require).Run(t.Context(), Command{
		Args:   []string{"-f", "lavfi", "-i", "color=s=7680x4320", "-vf", "hflip,loop=loop=1:size=1000", "-f", "null", "-"},
		Pixels: 1,
	})
	if ReasonOf(err) != OutOfMemory || weir.KindOf(err) != weir.Internal {
		t.Errorf("error = %v, want out of memory", err)
	}
	if !strings.HasPrefix(errorMessages(t, err), sentenceInternal+": ffmpeg ran out of memory") {
		t.Errorf("message = %q", errorMessages(t, err))
	}
}

func TestCPUTimeIsLimited(t *testing.T) {
	err := engine(t, Require).Run(t.Context(), Command{
		Args: []string{"-f", "lavfi", "-i", "mandelbrot", "-f", "null", "-"},
		CPU:  time.Second,
	})
	if ReasonOf(err) != stalled || !strings.Contains(err.Error(), "CPU time") {
		t.Errorf("error = %v, want the end of CPU time", err)
	}
}

// Every encoder works in the sandbox, with several threads.
func TestEncodersInSandbox(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	e := engine(t, Require)
	capabilities, err := e.Capabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	source := clip(t, "a.mp4", small()...)
	for _, tt := range []struct{ encoder, kind string }{
		{"libx264", "v"}, {"libx265", "v"}, {"libvpx-vp9", "v"}, {"libsvtav1", "v"}, {"libaom-av1", "v"}, {"mjpeg", "v"}, {"aac", "a"}, {"libopus", "a"}, {"flac", "a"},
	} {
		t.Run(tt.encoder, func(t *testing.T) {
			if !capabilities.Encoder(tt.encoder) {
				t.Skip("this ffmpeg does not have it")
			}
			var out bytes.Buffer
			args := append(InputOptions(), "-i", "file:"+source, "-map", "0:"+tt.kind, "-c:"+tt.kind, tt.encoder, "-t", "0.5", "-threads", "4")
			if tt.encoder == "libaom-av1" {
				args = append(args, "-cpu-used", "8")
			}
			err := e.Run(t.Context(), Command{
				Args: append(args, "-f", "nut", "pipe:3"), Read: []string{source}, Outputs: []io.Writer{&out}, Pixels: 2 * 320 * 180, Threads: 4,
			})
			if err != nil || out.Len() == 0 {
				t.Errorf("%d bytes, %v", out.Len(), err)
			}
		})
	}
}

// hugePages returns how much of a process's memory is in huge pages; "" = nothing.
func hugePages(pid string) string {
	text, _ := os.ReadFile("/proc/" + pid + "/smaps_rollup")
	_, after, _ := strings.Cut(string(text), "AnonHugePages:")
	line, _, _ := strings.Cut(after, "\n")
	return strings.TrimPrefix(strings.TrimSpace(line), "0 kB")
}

// The sandbox lets glibc read what it needs for huge pages.
func TestHugePages(t *testing.T) {
	memory, err := unix.Mmap(-1, 0, 16<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(memory) }()
	before := hugePages("self")
	if err := unix.Madvise(memory, unix.MADV_HUGEPAGE); err != nil {
		t.Skipf("this kernel has no huge pages: %v", err)
	}
	clear(memory)
	if hugePages("self") == before {
		t.Skip("this kernel gives no huge pages")
	}

	video := []string{"-re", "-f", "lavfi", "-i", "testsrc2=s=3840x2160:r=4", "-c:v", "rawvideo", "-f", "rawvideo", "pipe:3"}
	err = atWork(t, Command{Args: video}, func(pid int) {
		wait.Until(t, "ffmpeg has huge pages", func() bool { return hugePages(strconv.Itoa(pid)) != "" })
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
	})
	if ReasonOf(err) != killed {
		t.Error(err)
	}
}

func TestSandboxArguments(t *testing.T) {
	want := grant{Read: []string{"/a", "/b c"}, Memory: 5 << 30, CPU: 3 * time.Minute, Nice: true}
	g, mode, command, err := parseSandbox(append(want.args(Best), "/usr/bin/ffmpeg", "-i", "--memory=1"))
	if err != nil || mode != Best || !slices.Equal(command, []string{"/usr/bin/ffmpeg", "-i", "--memory=1"}) {
		t.Errorf("mode %q, command %q, %v", mode, command, err)
	}
	if fmt.Sprint(g) != fmt.Sprint(want) {
		t.Errorf("grant = %+v, want %+v", g, want)
	}
	for _, args := range [][]string{nil, {"--"}, {"--", "ffmpeg"}, {"--mode=off", "--", "/bin/true"}, {"--memory=x", "--", "/bin/true"}, {"--what", "--", "/bin/true"}} {
		if _, _, _, err := parseSandbox(args); err == nil {
			t.Errorf("%q was understood", args)
		}
	}
}

func TestRelativePaths(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("in", []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := copied(t, Require, "file:in", "in"); err != nil || got != "content" {
		t.Errorf("copied %q, %v", got, err)
	}
}

// Mode best uses every feature of the kernel; here that is all of them.
func TestBestEffort(t *testing.T) {
	got, err := runProgram(t, engine(t, Best), grant{}, "/usr/bin/perl", "-e", `print socket(S, 2, 1, 0) ? "socket" : "none"`)
	if err != nil || got != "none" {
		t.Errorf("got %q, %v", got, err)
	}
}

// Mode strict needs Landlock, the others warn when it is missing.
func TestStrict(t *testing.T) {
	got, err := runProgram(t, engine(t, Strict), grant{}, "/usr/bin/perl", "-e", `print socket(S, 2, 1, 0) ? "socket" : "none"`)
	if ReadKernel().Landlock > 0 {
		if err != nil || got != "none" {
			t.Errorf("got %q, %v", got, err)
		}
	} else if f, ok := errors.AsType[*failure](err); !ok || f.reason != noSandbox || !strings.Contains(f.stderr, "landlock: this kernel does not have it") {
		t.Errorf("error = %v, want one about Landlock", err)
	}
	for _, mode := range []Mode{Strict, Require, Best, Off} {
		e := &Engine{mode: mode}
		if warning := e.Unconfined(Kernel{}); (warning != "") != (mode != Off) || warning != "" && !strings.Contains(warning, "Landlock") {
			t.Errorf("mode %s without Landlock: %q", mode, warning)
		}
		if warning := e.Unconfined(Kernel{Landlock: 1}); warning != "" {
			t.Errorf("mode %s with Landlock: %q", mode, warning)
		}
	}
}

func TestSandboxFailure(t *testing.T) {
	_, err := confined(t, grant{Read: []string{"/nonexistent"}}, "/bin/true")
	if ReasonOf(err) != noSandbox || weir.KindOf(err) != weir.Internal {
		t.Errorf("error = %v, want a sandbox that could not be set up", err)
	}
	if f, ok := errors.AsType[*failure](err); !ok || !strings.Contains(f.stderr, "/nonexistent") {
		t.Errorf("error = %v does not say why", err)
	}
}

func TestMemoryGrowsWithPixels(t *testing.T) {
	ladder := int64(1920*1080*2 + 1280*720 + 854*480 + 640*360)
	for _, tt := range []struct {
		name     string
		pixels   int64
		threads  int
		measured int64 // megabytes that an encoder needed
	}{
		{"x264", ladder, 1, 539}, {"x264 with threads", ladder, 8, 1554}, {"SVT-AV1", ladder, 1, 898 + 375*2}, {"SVT-AV1 at 2160p", 3840*2160 + 1920*1080, 1, 1573 + 163*2},
	} {
		if got := memoryFor(tt.pixels, tt.threads) >> 20; got < tt.measured*3/2 || got > tt.measured*8 {
			t.Errorf("%s may use %d MB and needs %d", tt.name, got, tt.measured)
		}
	}
}
