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
	// Args are the arguments from the first input on. Run puts the global options
	// before them.
	Args []string

	Dir  string   // folder of its own, which it may write; "" = it writes no files
	Read []string // files and folders that it may read

	// Stdin is what ffmpeg reads as pipe:0; nil = nothing. Its error ends the run. Run
	// closes it when it is an io.Closer, so that a reader that waits for more comes
	// back when ffmpeg needs no more.
	Stdin io.Reader

	// Outputs get what ffmpeg writes to pipe:3, pipe:4 and so on, each from a goroutine
	// of its own. The first error of one ends the run. One that is an *io.PipeWriter is
	// closed with the error when the run is broken off; others must not block for ever.
	Outputs []io.Writer

	Threads  int  // cores it takes from the ledger; 0 = 1
	Reserved bool // its cores were taken by Reserve, so Run takes none
	Priority Priority
	Pixels   int64         // width times height of the source and of each output picture, added up; 0 = 1080p and a ladder below it
	CPU      time.Duration // most CPU time; 0 = a hundred hours
	Stall    time.Duration // end it when nothing moves for so long; 0 = one minute

	// Progress is called about twice a second, one call at a time; nil = nobody asks.
	Progress func(Progress)

	// Log gets every line that ffmpeg says for information, one at a time; nil = it says
	// only what is wrong.
	Log func(line string)

	// Complaint gets the error that Run would have returned by what ffmpeg said, had it not
	// ended well: it does so although it had no memory for some frames, or for the end of a
	// file. Whoever finds something missing learns here why; nil = nobody asks.
	Complaint func(error)

	// Damage gets what could not be decoded of the source, of a run that ended well
	// nevertheless; nil = nobody asks.
	Damage *Damage
}

// Progress is how far a run is.
type Progress struct {
	Frame int64         // frames of the first video output
	Time  time.Duration // of what has been written, where the outputs are furthest
	Bytes int64         // written
	Speed float64       // against real time; 0 = not known yet
	Done  bool          // this is the last one
}

const (
	defaultStall  = time.Minute
	defaultCPU    = 100 * time.Hour
	defaultPixels = 2 * 1920 * 1080 * 2
)

// Run waits for cores, runs ffmpeg and returns when it has ended and everything it
// wrote has been taken. When ctx ends, ffmpeg is killed at once and the error is
// ctx's. An error that ffmpeg is to blame for has a [Failure] inside; an error of
// Stdin or of an output comes back as it is.
func (e *Engine) Run(ctx context.Context, c Command) error {
	if !c.Reserved {
		release, err := e.acquire(ctx, c.Priority, c.Threads)
		if err != nil {
			return err
		}
		defer release()
	}

	// The sandbox wants whole paths. In Args they may be relative: ffmpeg has weir's
	// own working folder.
	var err error
	write, read := "", slices.Clone(c.Read)
	if c.Dir != "" {
		if write, err = filepath.Abs(c.Dir); err != nil {
			return err
		}
	}
	for i := range read {
		if read[i], err = filepath.Abs(read[i]); err != nil {
			return err
		}
	}
	progress := 3 + len(c.Outputs)
	level := "error"
	switch { // repeat = every line, also one like the line before
	case c.Log != nil:
		level = "repeat+level+info"
	case c.Damage != nil:
		level = "repeat+level+warning"
	}
	args := []string{"-hide_banner", "-nostdin", "-y", "-nostats", "-v", level, "-progress", "pipe:" + strconv.Itoa(progress)}
	return e.execute(ctx, process{
		program: e.ffmpeg,
		args:    append(args, c.Args...),
		grant: grant{
			Write:  write,
			Read:   read,
			Memory: memoryFor(cmp.Or(c.Pixels, defaultPixels), c.Threads),
			CPU:    cmp.Or(c.CPU, defaultCPU),
			Nice:   c.Priority == Batch,
		},
		stdin:    c.Stdin,
		outputs:  c.Outputs,
		progress: c.Progress,
		log:      c.Log,
		complain: c.Complaint,
		levels:   level != "error",
		damage:   c.Damage,
		stall:    cmp.Or(c.Stall, defaultStall),
	})
}

// readProgress reads what ffmpeg writes for -progress: lines of key=value, of which
// `progress` is the last of each block. moved is called when a block differs from
// the one before.
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
			now.Bytes, _ = strconv.ParseInt(value, 10, 64)
		case "speed":
			now.Speed, _ = strconv.ParseFloat(strings.TrimSuffix(value, "x"), 64)
		case "progress":
			now.Done = value == "end"
			if now.Frame != before.Frame || now.Time != before.Time || now.Bytes != before.Bytes {
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
