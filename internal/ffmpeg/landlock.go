package ffmpeg

import (
	"os"
	"path/filepath"

	"github.com/landlock-lsm/go-landlock/landlock"
	access "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// systemFiles are read by codecs and their libraries, if they exist.
func systemFiles() []string {
	return []string{
		"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/localtime", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat",
		"/proc/self/maps", "/proc/self/status", "/proc/self/stat", "/dev/urandom", "/dev/zero",
		"/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
	}
}

const (
	readFile   landlock.AccessFSSet = access.AccessFSReadFile
	readFolder landlock.AccessFSSet = access.AccessFSReadFile | access.AccessFSReadDir
	runFolder                       = readFolder | access.AccessFSExecute
	writeFile                       = readFile | access.AccessFSWriteFile
)

// landlock restricts the process to the files of the grant and those that every program of the system
// needs to start. Without Landlock in the kernel it does nothing.
func (g grant) landlock(program string) error {
	// A program outside of the system's folders has its libraries beside it.
	bin := filepath.Dir(program)
	folders := []string{"/usr", "/lib", "/lib64", "/sys/devices/system/cpu", "/sys/devices/system/node", bin, filepath.Join(filepath.Dir(bin), "lib")}
	rules := []landlock.Rule{
		landlock.PathAccess(runFolder, folders...).IgnoreIfMissing(),
		landlock.PathAccess(readFile, systemFiles()...).IgnoreIfMissing(),
		landlock.PathAccess(writeFile, "/dev/null").IgnoreIfMissing(),
	}
	for _, path := range g.Read {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.IsDir() {
			rules = append(rules, landlock.PathAccess(readFolder, path))
		} else {
			rules = append(rules, landlock.PathAccess(readFile, path))
		}
	}
	return landlock.V6.BestEffort().Restrict(rules...)
}

// landlockVersion returns the version of the kernel's Landlock, or 0.
func landlockVersion() int {
	version, err := access.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return version
}
