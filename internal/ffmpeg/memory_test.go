package ffmpeg

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/weir"
)

func TestMachineMemory(t *testing.T) {
	const meminfo = "MemTotal:       4000000 kB\nMemFree:  1 kB\n"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"nothing", nil, 0},
		{"machine", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n"}, 4000000 << 10},
		{"no limit", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 4000000 << 10},
		{"container", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1073741824\n"}, 1 << 30},
		{"service", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/system.slice/weir.service\n",
			"sys/fs/cgroup/system.slice/weir.service/memory.max": "max\n", "sys/fs/cgroup/system.slice/memory.max": "2147483648\n",
		}, 2 << 30},
		{"container with the path of its host", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "9:name=systemd:/docker/1\n4:memory:/docker/1\n0::/docker/1\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912\n",
		}, 512 << 20},
		{"version 1 without a limit", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n",
		}, 4000000 << 10},
		{"nonsense", map[string]string{"proc/meminfo": "MemTotal:\nMemTotal: x kB\n", "proc/self/cgroup": "x\n::\n", "sys/fs/cgroup/memory.max": "-5\n"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for name, content := range tt.files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := machineMemory(root); got != tt.want {
				t.Errorf("%d bytes, want %d", got, tt.want)
			}
		})
	}
	if machineMemory("/") <= 0 {
		t.Error("the memory of this machine is not known")
	}
}

// On a small machine, runs have less memory. What can't fit is refused before it starts, and what did not
// fit is refused for good.
func TestMemoryOfSmallMachine(t *testing.T) {
	const small = 512 << 20
	e := engine(t, Require)
	e.memory = small
	if got := e.memoryLimit(1920*1080, 4); got != small {
		t.Errorf("a run may use %d bytes, the machine has %d for it", got, small)
	}
	if err := e.Fits(1920 * 1080 * 2); err != nil {
		t.Error(err)
	}
	err := e.Run(t.Context(), Command{Args: []string{"-f", "lavfi", "-i", "color=s=64x64", "-f", "null", "-"}, Pixels: 7680 * 4320})
	wantKind(t, err, weir.Invalid, InvalidSource, "frames of this size need more memory than the 536 MB that this machine can provide")

	// The filter keeps a thousand frames of 50 MB.
	loop := []string{"-f", "lavfi", "-i", "color=s=7680x4320", "-vf", "hflip,loop=loop=1:size=1000", "-f", "null", "-"}
	err = e.Run(t.Context(), Command{Args: loop})
	wantKind(t, err, weir.Invalid, InvalidSource, "decoding it needs more memory than the 536 MB")
	if ReasonOf(err) != OutOfMemory {
		t.Errorf("reason = %q", ReasonOf(err))
	}

	var logged error
	c := Command{Logged: func(err error) { logged = err }}
	said := &tail{}
	said.read(strings.NewReader("Cannot allocate memory\n"))
	c.Logged(e.outOfMemory(diagnose("ffmpeg", nil, said, nil), c))
	wantKind(t, logged, weir.Invalid, "decoding it needs more memory")
	if err := e.outOfMemory(io.EOF, c); err != io.EOF {
		t.Errorf("another error became %v", err)
	}
}
