package ffmpeg

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"weir/internal/weir"
)

// Memory of a run. Measured on a 1080p source with four renditions (5.7 million
// pixels in all): x264 with one thread needs 370 MB, with eight 760, x265 500, VP9
// 620, SVT-AV1 900; SVT-AV1 at 2160p 1570. The limits are about twice as high.
const (
	memoryBase        = 1 << 30
	memoryPerPixel    = 300
	memoryPerThread   = 64 << 20
	memoryThreadPixel = 16 // each thread keeps frames of its own
)

// memoryFor returns the memory limit of a run, in bytes.
func memoryFor(pixels int64, threads int) int64 {
	pixels, n := max(pixels, 0), int64(max(threads, 1))
	return memoryBase + pixels*memoryPerPixel + n*(memoryPerThread+pixels*memoryThreadPixel)
}

// minMemoryPerPixel is how many bytes a pixel of the source and of the renditions takes at least, with the
// most frugal encoder and one thread.
const minMemoryPerPixel = 64

// memoryLimit returns the memory limit of a run in bytes: as much as it may need, at most what this
// machine can give.
func (e *Engine) memoryLimit(pixels int64, threads int) int64 {
	wanted := memoryFor(pixels, threads)
	if e.memory > 0 {
		return min(wanted, e.memory)
	}
	return wanted
}

// Fits returns an error for frames that need more memory than this machine can give. Pixels is as in
// Command.
func (e *Engine) Fits(pixels int64) error {
	if e.memory == 0 || pixels <= e.memory/minMemoryPerPixel {
		return nil
	}
	return weir.Errorf(weir.Invalid, "%s: frames of this size need more memory than the %d MB that this machine can provide; send smaller ones",
		InvalidSource, e.memory/1e6)
}

// outOfMemory makes the error of a run that had no memory one of the file, if the machine can't give
// more: another attempt would end in the same way.
func (e *Engine) outOfMemory(err error, c Command) error {
	if ReasonOf(err) != OutOfMemory || e.memory == 0 || memoryFor(c.pixels(), c.Threads) <= e.memory {
		return err
	}
	return weir.Wrap(weir.Invalid, err, "%s: decoding it needs more memory than the %d MB that this machine can provide", InvalidSource, e.memory/1e6)
}

// machineMemory returns the memory of this machine in bytes, or what a control group leaves of it to
// this process and its children; 0 = not known. root is the root folder.
func machineMemory(root string) int64 {
	read := func(elements ...string) []byte {
		data, _ := os.ReadFile(filepath.Join(append([]string{root}, elements...)...))
		return data
	}
	var total int64
	lines := bufio.NewScanner(bytes.NewReader(read("proc/meminfo")))
	for lines.Scan() {
		if words := strings.Fields(lines.Text()); len(words) > 1 && words[0] == "MemTotal:" { // MemTotal:  24682440 kB
			kilobytes, _ := strconv.ParseInt(words[1], 10, 54)
			total = kilobytes << 10
		}
	}
	// The lines of the file are like 0::/path in version 2, and 4:memory:/path in version 1. In a
	// container the path may be that on the host, which does not exist inside: then the limit is at
	// the top. The groups above a group limit it, too.
	lines = bufio.NewScanner(bytes.NewReader(read("proc/self/cgroup")))
	for lines.Scan() {
		parts := strings.SplitN(lines.Text(), ":", 3)
		if len(parts) < 3 {
			continue
		}
		top, file := "sys/fs/cgroup", "memory.max"
		if parts[1] == "memory" {
			top, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if parts[1] != "" {
			continue
		}
		for group := filepath.Join("/", parts[2]); ; group = filepath.Dir(group) {
			limit, err := strconv.ParseInt(strings.TrimSpace(string(read(top, group, file))), 10, 64)
			if err == nil && limit > 0 && (total == 0 || limit < total) {
				total = limit
			}
			if group == "/" {
				break
			}
		}
	}
	return total
}
