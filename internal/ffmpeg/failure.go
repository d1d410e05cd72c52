package ffmpeg

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"weir/internal/weir"
)

// InvalidSource starts the message of every error about the content of a source; clients match it.
const InvalidSource = "invalid video file codec or container"

// The other sentences of the API contract that an error starts with; clients match them.
const (
	sentenceProbe    = "failed to probe or open file"
	sentenceInternal = "internal error processing file"
	sentenceStorage  = "error saving file to storage"
	sentenceTimeout  = "execution timeout"
)

// supported ends the errors of files that are of another kind; docs/transcode.md says the same.
const supported = "weir reads MP4, MOV, MKV, WebM, MPEG-TS, MPEG-PS, AVI, FLV, WMV, OGG and MXF files, " +
	"with H.264, HEVC, AV1, VP8, VP9, MPEG-1, MPEG-2, MPEG-4, ProRes or DNxHD video among others, and audio files"

// Reason says why ffmpeg failed.
type Reason string

// The reasons of failures.
const (
	BadInput    Reason = "bad input"     // the source's fault
	OutOfMemory Reason = "out of memory" // its limit, or the machine's

	missing   Reason = "missing"  // this ffmpeg lacks an encoder, a filter or a muxer
	killed    Reason = "killed"   // by another process, often by the kernel for lack of memory
	crashed   Reason = "crashed"  // by its own fault
	stalled   Reason = "stalled"  // it made no progress, or used up its CPU time
	noSpace   Reason = "no space" // on the disk, or its file grew over the limit
	noSandbox Reason = "sandbox"  // the sandbox could not be set up
	unknown   Reason = "unknown"
)

// failure is the cause inside an error of ffmpeg or ffprobe.
type failure struct {
	program string // ffmpeg or ffprobe
	reason  Reason
	status  string // exit status 1, signal: killed …
	stderr  string // the first and last lines
}

func (f *failure) Error() string {
	text := fmt.Sprintf("%s: %s (%s)", f.program, f.status, f.reason)
	if f.stderr != "" {
		text += ": " + f.stderr
	}
	return text
}

// ReasonOf returns the reason of a failure of ffmpeg, and "" for any other error.
func ReasonOf(err error) Reason {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.reason
	}
	return ""
}

// symptom is a row of the table that turns ffmpeg's messages into errors.
type symptom struct {
	words    string // regular expression on one line of stderr, in lower case
	reason   Reason
	kind     weir.Kind
	sentence string
	detail   string // for people
}

// saidByFFmpeg is the placeholder of a detail for ffmpeg's line, without names of files.
const saidByFFmpeg = "{said}"

// symptoms are tried in this order on all lines: causes come before their consequences. A full disk
// often leads to a line about the source, never the other way round.
func symptoms() []symptom {
	const said = saidByFFmpeg
	const notMedia = "this is not a video or audio file that can be read"
	return []symptom{
		{`^weir sandbox: `, noSandbox, weir.Internal, sentenceInternal, "the sandbox of ffmpeg could not be set up; weir doctor shows what is missing"},
		{`no space left on device|disk quota exceeded`, noSpace, weir.Full, sentenceStorage, "the disk is full"},
		{`file too large`, noSpace, weir.Internal, sentenceInternal, "a file exceeds the size limit"},
		{`number of streams exceeds max_streams`, BadInput, weir.Invalid, sentenceProbe, "the file has more than 1000 tracks"},
		{`image parameters invalid|picture size .* is invalid`, BadInput, weir.Invalid, sentenceProbe, said},
		{`alloc|get_buffer\(\) failed|out of memory|failed to map segment|cannot map zero-fill|cannot create shared object|pthread_create failed|failed to create new os thread|\boom\b`, OutOfMemory, weir.Internal, sentenceInternal, "ffmpeg ran out of memory"},
		{`error while opening encoder`, unknown, weir.Internal, sentenceInternal, "ffmpeg could not start an encoder, perhaps for lack of memory"},
		{`av_interleaved_write_frame|error writing trailer|error muxing|could not write header`, unknown, weir.Internal, sentenceInternal, "the output of ffmpeg could not be written"},
		{`unknown encoder|encoder not found|error selecting an encoder|automatic encoder selection failed|no such filter|requested output format .* is not a suitable|unknown bitstream filter`, missing, weir.Unavailable, sentenceInternal, "the installed ffmpeg lacks an encoder, filter or muxer that is needed; install one with libx264, libx265, libvpx, libsvtav1 and zimg"},
		{`moov atom not found`, BadInput, weir.Invalid, sentenceProbe, "the file is truncated: its index (moov) is missing; send the whole file"},
		{`not on whitelist`, BadInput, weir.Invalid, InvalidSource, "playlists, lists of files and images can't be sources; send the video file itself"},
		{`decoder .*not found|could not find codec parameters|unsupported codec|unknown codec|codec .* is not supported|not yet implemented|is not implemented`, BadInput, weir.Invalid, InvalidSource, said + "; " + supported},
		{`could not find corresponding|invalid nal unit size|error while decoding|decode_slice_header error|error splitting|partial file|truncat|end of file|error reading|corrupt|missing picture|decoding error|non-existing pps`, BadInput, weir.Invalid, sentenceProbe, said},
		{`does not contain any stream|matches no streams`, BadInput, weir.Invalid, InvalidSource, notMedia + "; " + supported},
		{`invalid data found when processing input`, BadInput, weir.Invalid, sentenceProbe, notMedia + ", or it is damaged; " + supported},
	}
}

// address is how ffmpeg names its objects: [h264 @ 0x55d0c3a1b2c0].
var address = regexp.MustCompile(` @ 0x[0-9a-f]+`)

// diagnose returns the error of a process that failed, or complained. The message does not show the
// paths in names.
func diagnose(program string, exit error, said *tail, names []string) error {
	f := &failure{program: program, status: "exit status 0", stderr: said.String()}
	if exit != nil {
		f.status = exit.Error()
	}
	fail := func(reason Reason, kind weir.Kind, format string, args ...any) error {
		f.reason = reason
		return weir.Wrap(kind, f, format, args...)
	}
	var lines []string // without names of files, which could look like a symptom
	for _, line := range said.lines() {
		lines = append(lines, withoutNames(line, names))
	}
	for _, s := range symptoms() {
		words := regexp.MustCompile(s.words)
		for _, line := range lines {
			if words.MatchString(strings.ToLower(line)) {
				return fail(s.reason, s.kind, "%s: %s", s.sentence, strings.ReplaceAll(s.detail, saidByFFmpeg, line))
			}
		}
	}
	if status, ok := errors.AsType[*exec.ExitError](exit); ok {
		if ws, ok := status.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			switch signal := ws.Signal(); signal {
			case syscall.SIGXFSZ:
				return fail(noSpace, weir.Internal, "%s: a file exceeds the size limit", sentenceInternal)
			case syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGILL, syscall.SIGFPE, syscall.SIGTRAP, syscall.SIGSYS:
				return fail(crashed, weir.Internal, "%s: %s crashed (%v)", sentenceInternal, program, signal)
			default:
				return fail(killed, weir.Internal, "%s: %s was killed (%v), perhaps for lack of memory", sentenceInternal, program, signal)
			}
		}
	}
	return fail(unknown, weir.Internal, "%s: %s failed", sentenceInternal, program)
}

// timedOut returns the error of a process that made no progress or used up its CPU time.
func timedOut(program, why string, said *tail) error {
	f := &failure{program: program, reason: stalled, status: why, stderr: said.String()}
	return weir.Wrap(weir.Internal, f, "%s: %s %s", sentenceTimeout, program, why)
}

// withoutNames removes addresses and paths from a line of ffmpeg.
func withoutNames(line string, names []string) string {
	line = address.ReplaceAllString(line, "")
	for _, name := range names {
		line = strings.ReplaceAll(line, "file:"+name, "the source")
		line = strings.ReplaceAll(line, name, "the source")
	}
	for _, name := range names {
		line = strings.ReplaceAll(line, filepath.Dir(name)+"/", "")
	}
	return strings.ReplaceAll(line, "pipe:0", "the source")
}

// How many lines of stderr are kept: ffmpeg can write gigabytes.
const (
	keepFirst = 12
	keepLast  = 24
	keepBytes = 400 // of a line
)

// tail keeps the first and last lines of stderr.
type tail struct {
	levels bool   // lines contain their level; if not, all are errors
	damage Damage // of the source, by those lines

	mu      sync.Mutex
	first   []string
	last    []string // a ring once it is full
	next    int      // where the next line goes in last
	dropped int
}

// read reads lines until the end.
func (t *tail) read(r io.Reader) {
	lines := bufio.NewReaderSize(r, 4096)
	for {
		line, long, err := lines.ReadLine()
		if len(line) > 0 {
			t.classify(strings.ToValidUTF8(string(line[:min(len(line), keepBytes)]), "?"))
		}
		for long && err == nil { // skip the rest of the line
			_, long, err = lines.ReadLine()
		}
		if err != nil {
			return
		}
	}
}

// classify handles a line according to its level.
func (t *tail) classify(line string) {
	if t.levels {
		for _, level := range []string{"[info] ", "[warning] "} {
			if strings.Contains(line, level) {
				t.damage.warning(line)
				return
			}
		}
		for _, level := range []string{"[error] ", "[fatal] ", "[panic] "} {
			line = strings.Replace(line, level, "", 1)
		}
		t.damage.error(line)
	}
	t.keep(line)
}

func (t *tail) keep(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case len(t.first) < keepFirst:
		t.first = append(t.first, line)
	case len(t.last) < keepLast:
		t.last = append(t.last, line)
	default:
		t.last[t.next] = line
		t.next = (t.next + 1) % keepLast
		t.dropped++
	}
}

func (t *tail) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := append([]string{}, t.first...)
	lines = append(lines, t.last[t.next:]...)
	return append(lines, t.last[:t.next]...)
}

func (t *tail) String() string {
	lines := t.lines()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dropped > 0 {
		lines = append(lines[:keepFirst:keepFirst], append([]string{fmt.Sprintf("(%d lines left out)", t.dropped)}, lines[keepFirst:]...)...)
	}
	return strings.Join(lines, "\n")
}
