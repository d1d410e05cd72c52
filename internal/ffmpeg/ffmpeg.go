// Package ffmpeg is the only starter of ffmpeg and ffprobe.
//
// weir uses ffmpeg only as a codec: it decodes, filters and encodes. It parses untrusted bytes
// with a million lines of C, so it gets as few rights as possible: it runs as a child process in
// a sandbox (sandbox.go), reads only the files given to it and pipes that weir fills, writes only
// to pipes, and has no network, little memory, and none of weir's environment.
//
// A node has one [Engine]. [Engine.Probe] describes a file, [Engine.Run] runs a command whose
// arguments come from the planner (plan.go, pure), and the ledger of cores (ledger.go) decides
// which command may run now: live before interactive before batch. A table (failure.go) turns the
// messages of a failed ffmpeg into an error that a person can act on.
package ffmpeg

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"weir/internal/weir"
)

// Mode says how much of the sandbox must work.
type Mode string

// The modes of the sandbox.
const (
	Strict  Mode = "strict"  // limits, seccomp and Landlock must work
	Require Mode = "require" // limits and seccomp must work; Landlock where the kernel has it
	Best    Mode = "best"    // what the kernel has
	Off     Mode = "off"     // nothing: for debugging, and where another sandbox is around
)

// required reports whether ffmpeg must not start without limits and seccomp.
func (m Mode) required() bool { return m == Require || m == Strict }

// Options configure an engine. The zero value uses the programs in PATH, all cores of this machine
// and the whole sandbox.
type Options struct {
	FFmpeg  string // program; "" = ffmpeg in PATH
	FFprobe string // program; "" = ffprobe in PATH
	Sandbox Mode   // "" = Require
	Self    string // the program whose first argument `sandbox` calls Sandbox; "" = this one
	Cores   int    // cores that may be busy at once; 0 = all of this machine
	Memory  int64  // bytes that one run may have at most; 0 = a share of this machine's
	Speed   string // file that stores the speed of this machine; "" = it is not stored
	Log     *slog.Logger
}

// Engine starts ffmpeg and ffprobe and keeps the ledger of cores. It is safe for concurrent use.
type Engine struct {
	ffmpeg, ffprobe string
	mode            Mode
	self            string
	ledger          *ledger
	brief           *ledger // of brief runs: half of the cores, so that live streams keep theirs
	memory          int64   // bytes that one run may have at most; 0 = not known
	log             *slog.Logger

	probing probing

	runs, failures atomic.Int64
	threads        atomic.Int64 // of the running video encoders

	capabilityLock sync.Mutex
	capabilities   *Capabilities // nil = not asked yet

	speedFile string
	speedLock sync.Mutex
	measured  bool // the ledger has the speed of this machine, or it could not be measured
}

// New returns an engine, or an error that says what to install. It starts nothing.
func New(o Options) (*Engine, error) {
	e := &Engine{mode: o.Sandbox, self: o.Self, log: o.Log, speedFile: o.Speed, probing: defaultProbing()}
	var err error
	if e.ffmpeg, err = program(o.FFmpeg, "ffmpeg"); err != nil {
		return nil, err
	}
	if e.ffprobe, err = program(o.FFprobe, "ffprobe"); err != nil {
		return nil, err
	}
	switch e.mode {
	case "":
		e.mode = Require
	case Strict, Require, Best, Off:
	default:
		return nil, weir.Errorf(weir.Invalid, "sandbox: %q is not a mode; use strict, require, best or off", o.Sandbox)
	}
	if e.self == "" && e.mode != Off {
		if e.self, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("find the program that sandboxes ffmpeg: %w", err)
		}
		// A test binary without a sandbox command would run all its tests instead.
		if strings.HasSuffix(e.self, ".test") {
			return nil, weir.Errorf(weir.Internal, "tests must set the program of the sandbox, or turn the sandbox off")
		}
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if o.Cores <= 0 {
		o.Cores = runtime.NumCPU()
	}
	e.ledger, e.brief = newLedger(o.Cores), newLedger(max(o.Cores/2, 1))
	e.memory = cmp.Or(o.Memory, machineMemory("/")/4*3)
	return e, nil
}

// program returns the absolute path of a program that weir runs.
func program(path, name string) (string, error) {
	if path == "" {
		path = name
	}
	found, err := exec.LookPath(path)
	if err != nil {
		return "", weir.Wrap(weir.Unavailable, err, "%s is not installed; install it with: apt-get install ffmpeg (or the ffmpeg package of your system)", name)
	}
	return filepath.Abs(found)
}

// Idle returns how many cores have no thread of an encoder now.
func (e *Engine) Idle() int {
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	return max(e.ledger.cores-e.ledger.taken()-int(e.threads.Load()), 0)
}

// Stats counts cores, grants and processes.
type Stats struct {
	Cores    int    // in the ledger
	Busy     int    // of them
	Running  [3]int // grants now, by Priority
	Waiting  [3]int // requests that wait for cores, by Priority
	Runs     int64  // processes started
	Failures int64  // of them that failed
}

func (e *Engine) Stats() Stats {
	s, brief := e.ledger.stats(), e.brief.stats()
	for priority := range s.Running {
		s.Running[priority] += brief.Running[priority]
		s.Waiting[priority] += brief.Waiting[priority]
	}
	s.Runs, s.Failures = e.runs.Load(), e.failures.Load()
	return s
}

// InputOptions returns the options before every input of ffmpeg and ffprobe: only files and pipes,
// and no format that refers to other files (playlists, lists of files, numbered images, devices),
// because a caller's file must not make ffmpeg open anything else.
func InputOptions() []string {
	return []string{"-protocol_whitelist", "file,pipe", "-format_whitelist", readable}
}

// readable are the formats that weir reads, by the names of ffmpeg's demuxers.
const readable = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,mpegts,mpeg,mpegvideo,avi,flv,live_flv,asf,ogg,mxf,gxf,nut,dv,ivf,obu,av1," +
	"h261,h263,h264,hevc,m4v,mjpeg,vc1,cavsvideo,avs2,avs3,dirac,dnxhd,yuv4mpegpipe,gif,apng,rm,nsv,nuv,wtv,ty,pva,swf,roq,smk,bink,cine,r3d,ser,mlv,lxf," +
	"aac,ac3,eac3,mp3,flac,wav,w64,aiff,caf,au,amr,amrnb,amrwb,ape,mpc,mpc8,tta,tak,wv,dts,dtshd,truehd,mlp,loas,oma,qcp,voc,dsf,wsd,shn,gsm,sbc,adx,spdif,s337m,xwma"
