package ffmpeg

import (
	"os"
	"path/filepath"

	"github.com/landlock-lsm/go-landlock/landlock"
	access "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// What codecs and their libraries read of a system; what is not there is left out.
func systemFolders() []string {
	return []string{"/usr", "/lib", "/lib64", "/sys/devices/system/cpu", "/sys/devices/system/node"}
}

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
	ownFolder                       = readFolder | access.AccessFSWriteFile | access.AccessFSTruncate | access.AccessFSMakeReg |
		access.AccessFSMakeDir | access.AccessFSRemoveFile | access.AccessFSRemoveDir
)

// landlock leaves the process only the files that the grant names and what every
// program of the system needs to start. Without Landlock in the kernel it does nothing.
func (g grant) landlock(program string) error {
	// A program that is not the system's comes with its libraries beside it.
	bin := filepath.Dir(program)
	rules := []landlock.Rule{
		landlock.PathAccess(runFolder, append(systemFolders(), bin, filepath.Join(filepath.Dir(bin), "lib"))...).IgnoreIfMissing(),
		landlock.PathAccess(readFile, systemFiles()...).IgnoreIfMissing(),
		landlock.PathAccess(writeFile, "/dev/null").IgnoreIfMissing(),
	}
	if g.Write != "" {
		rules = append(rules, landlock.PathAccess(ownFolder, g.Write))
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
