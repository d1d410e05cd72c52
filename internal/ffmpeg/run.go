package ffmpeg

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Command is one run of ffmpeg.
type Command struct {
	// Args are the arguments from the first input on. Run puts the global options before them.
	Args []string

	Read []string // files and folders that it may read

	// Stdin is what ffmpeg reads as pipe:0; nil = nothing. Its error ends the run. Run closes it
	// when it is an io.Closer, so that a blocked Read returns when ffmpeg needs no more.
	Stdin io.Reader

	// Outputs get what ffmpeg writes to pipe:3, pipe:4 and so on, each from a goroutine of its own.
	// The first error of one ends the run. An *io.PipeWriter is closed with the error when the run
	// is cancelled; others must not block forever.
	Outputs []io.Writer

	Threads  int  // of its video encoders; 0 = it has none
	Reserved bool // its cores were taken by Reserve, so Run takes none
	Priority Priority
	// Brief says that it takes a moment, and that somebody waits for it. It does not wait for the
	// cores of runs that take long.
	Brief bool
	// Demote is closed when it need not be Interactive any more: the kernel treats it as Batch from
	// then on. Nil = never.
	Demote <-chan struct{}
	Pixels int64         // sum of width times height of the source and of each output, for the memory limit; 0 = 1080p and a ladder below it
	CPU    time.Duration // maximum of CPU time; 0 = a hundred hours
	Stall  time.Duration // how long it may make no progress; 0 = one minute

	// The callbacks may be nil. Progress is called about twice a second, one call at a time.
	Progress func(Progress)

	// Logged gets the error that ffmpeg's messages stand for when it ended with status 0: it
	// does so even if it had no memory for some frames, or for the end of a file. Callers that miss
	// frames learn the reason here.
	Logged func(error)

	// Damage gets what a successful run could not decode; may be nil.
	Damage *Damage
}

// Progress is how far a run is.
type Progress struct {
	Frame int64         // frames of the first video output
	Time  time.Duration // of the output that is furthest
	bytes int64         // written
}

// pixels returns Pixels, or its default.
func (c Command) pixels() int64 { return cmp.Or(c.Pixels, defaultPixels) }

const (
	defaultStall  = time.Minute
	defaultCPU    = 100 * time.Hour
	defaultPixels = 2 * 1920 * 1080 * 2
)

// Run waits for a core, runs ffmpeg and returns when it has ended and all its output was read. When
// ctx ends, ffmpeg is killed at once and the error is ctx's. [ReasonOf] an error tells why ffmpeg
// failed; an error of Stdin or of an output is returned as it is.
func (e *Engine) Run(ctx context.Context, c Command) error {
	if err := e.Fits(c.Pixels); err != nil {
		return err
	}
	if logged := c.Logged; logged != nil {
		c.Logged = func(err error) { logged(e.outOfMemory(err, c)) }
	}
	return e.outOfMemory(e.runCommand(ctx, c), c)
}

func (e *Engine) runCommand(ctx context.Context, c Command) error {
	if !c.Reserved {
		cores := e.ledger
		if c.Brief {
			cores = e.brief
		}
		release, err := cores.acquire(ctx, c.Priority)
		if err != nil {
			return err
		}
		defer release()
		e.threads.Add(int64(c.Threads))
		defer e.threads.Add(-int64(c.Threads))
	}

	// The sandbox needs absolute paths. In Args they may be relative: ffmpeg has weir's working
	// folder.
	var err error
	read := slices.Clone(c.Read)
	for i := range read {
		if read[i], err = filepath.Abs(read[i]); err != nil {
			return err
		}
	}
	progress := 3 + len(c.Outputs)
	level := "error"
	if c.Damage != nil {
		level = "repeat+level+warning" // repeat = every line, also one like the line before
	}
	args := []string{"-hide_banner", "-nostdin", "-y", "-nostats", "-v", level, "-progress", "pipe:" + strconv.Itoa(progress)}
	return e.execute(ctx, process{
		program: e.ffmpeg,
		args:    append(args, c.Args...),
		grant: grant{
			Read:   read,
			Memory: e.memoryLimit(c.pixels(), c.Threads),
			CPU:    cmp.Or(c.CPU, defaultCPU),
			Nice:   c.Priority == Batch,
		},
		stdin:    c.Stdin,
		outputs:  c.Outputs,
		progress: c.Progress,
		logged:   c.Logged,
		levels:   level != "error",
		damage:   c.Damage,
		demote:   c.Demote,
		stall:    cmp.Or(c.Stall, defaultStall),
	})
}

// readProgress parses the output of -progress: lines of key=value, of which `progress` is the last
// of each block. It calls moved when a block differs from the one before.
func readProgress(r io.Reader, moved func(), report func(Progress)) error {
	lines := bufio.NewScanner(r)
	var now, before Progress
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), "=")
		value = strings.TrimSpace(value)
		switch key {
		case "frame":
			now.Frame, _ = strconv.ParseInt(value, 10, 64)
		case "out_time_us", "out_time_ms": // both are microseconds; N/A before the first packet
			if us, err := strconv.ParseInt(value, 10, 64); err == nil {
				now.Time = time.Duration(us) * time.Microsecond
			}
		case "total_size":
			now.bytes, _ = strconv.ParseInt(value, 10, 64)
		case "progress":
			if now != before {
				moved()
			}
			before = now
			if report != nil {
				report(now)
			}
		}
	}
	return lines.Err()
}
