package ffmpeg

import (
	"fmt"
	"os"
	"slices"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// allowedCalls are the system calls that a codec needs, its allocator, its threads and its pipes. They
// give no socket, no second process, no memory outside the limits (memfd, shared segments) and no
// access to other processes, and none of them is new in the kernel.
func allowedCalls() []string {
	return []string{
		// files
		"read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "preadv2", "pwritev2", "open", "openat", "openat2",
		"close", "close_range", "creat", "stat", "fstat", "lstat", "newfstatat", "fstatat64", "statx", "statfs", "fstatfs", "lseek", "access", "faccessat",
		"faccessat2", "readlink", "readlinkat", "getdents", "getdents64", "getcwd", "chdir", "dup", "dup2", "dup3", "fcntl", "flock", "truncate",
		"ftruncate", "fallocate", "fsync", "fdatasync", "fadvise64", "sync_file_range", "copy_file_range", "sendfile", "splice", "mkdir", "mkdirat",
		"rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2", "umask", "utimensat",
		// memory
		"mmap", "mprotect", "munmap", "mremap", "madvise", "brk", "msync", "mincore", "mlock", "mlock2", "munlock", "membarrier", "get_mempolicy", "set_mempolicy", "mbind",
		// threads, and becoming ffmpeg
		"execve", "futex", "futex_waitv", "set_robust_list", "get_robust_list", "rseq", "exit", "exit_group", "set_tid_address", "arch_prctl",
		"sched_yield", "sched_getaffinity", "sched_getparam", "sched_getscheduler", "sched_get_priority_max", "sched_get_priority_min", "getcpu",
		"getpriority", "wait4", "waitid",
		// who and where am I
		"gettid", "getpid", "getppid", "getpgid", "getpgrp", "getsid", "getuid", "geteuid", "getgid", "getegid", "getgroups", "getresuid", "getresgid",
		"capget", "uname", "sysinfo", "times", "getrusage", "getrlimit", "getrandom",
		// time
		"clock_gettime", "clock_getres", "clock_nanosleep", "nanosleep", "gettimeofday", "time", "alarm", "setitimer", "getitimer",
		"timer_create", "timer_settime", "timer_gettime", "timer_delete", "timer_getoverrun", "timerfd_create", "timerfd_settime", "timerfd_gettime",
		// signals to itself, and waiting
		"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigtimedwait", "rt_sigsuspend", "sigaltstack", "pause", "restart_syscall",
		"poll", "ppoll", "select", "pselect6", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2",
		"eventfd", "eventfd2", "pipe", "pipe2",
	}
}

// refusal is a system call that is refused with these arguments.
type refusal struct {
	call   string
	unless []seccomp.Condition
}

// refusals are the calls that are harmless only with some arguments.
func refusals() []refusal {
	const (
		isTerminal, waitingBytes, windowSize, nonBlocking = 0x5401, 0x541b, 0x5413, 0x5421 // TCGETS, FIONREAD, TIOCGWINSZ, FIONBIO
		nameMemory                                        = 0x53564d41                     // PR_SET_VMA
	)
	other := func(argument uint32, than ...uint64) (conditions []seccomp.Condition) {
		for _, value := range than {
			conditions = append(conditions, seccomp.Condition{Argument: argument, Operation: seccomp.NotEqual, Value: value})
		}
		return conditions
	}
	return []refusal{
		{"clone", []seccomp.Condition{{Argument: 0, Operation: seccomp.BitsNotSet, Value: unix.CLONE_THREAD}}}, // threads, no processes
		{"tgkill", other(0, uint64(os.Getpid()))},                                                              // ffmpeg will have the same process id
		{"prlimit64", other(0, 0)},
		{"sched_setaffinity", other(0, 0)},
		{"prctl", other(0, unix.PR_SET_NAME, unix.PR_GET_NAME, unix.PR_CAPBSET_READ, nameMemory)},
		{"ioctl", other(1, isTerminal, waitingBytes, windowSize, nonBlocking)},
	}
}

// loadSeccomp restricts this thread, and the program it becomes, to the allowed calls; others fail
// with EPERM.
//
// There is one filter for the calls and one for each condition on arguments: after an argument that
// does not match, the library compares that argument, not the number of the call, with the next rule
// of the same filter.
func loadSeccomp() error {
	machine, err := arch.GetInfo("")
	if err != nil {
		return err
	}
	has := func(call string) bool { _, ok := machine.SyscallNames[call]; return ok }
	allowed := allowedCalls()
	for _, r := range refusals() {
		allowed = append(allowed, r.call)
	}
	allowed = slices.DeleteFunc(allowed, func(call string) bool { return !has(call) })

	policies := []seccomp.Policy{}
	for _, r := range refusals() {
		if has(r.call) {
			policies = append(policies, seccomp.Policy{DefaultAction: seccomp.ActionAllow, Syscalls: []seccomp.SyscallGroup{
				{Action: seccomp.ActionErrno, NamesWithCondtions: []seccomp.NameWithConditions{{Name: r.call, Conditions: r.unless}}},
			}})
		}
	}
	// A filter can't read the flags of clone3; without it, libraries use clone. Calls of another
	// architecture get the default action.
	policies = append(policies, seccomp.Policy{DefaultAction: seccomp.ActionErrno, Syscalls: []seccomp.SyscallGroup{
		{Action: seccomp.ActionErrno | seccomp.Action(unix.ENOSYS), Names: []string{"clone3"}},
		{Action: seccomp.ActionAllow, Names: allowed},
	}})
	// Older kernels turn off speculation for filtered processes, which would make encoding slower. It
	// protects from other code in the same process, and there is none.
	const speculate = seccomp.FilterFlag(unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW)
	// The filter of all calls comes last: it refuses seccomp(2).
	for i, policy := range policies {
		if err := seccomp.LoadFilter(seccomp.Filter{NoNewPrivs: i == 0, Flag: speculate, Policy: policy}); err != nil {
			return fmt.Errorf("filter %d: %w", i, err)
		}
	}
	return nil
}
