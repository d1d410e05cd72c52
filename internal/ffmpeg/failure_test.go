package ffmpeg

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"weir/internal/weir"
)

func TestDiagnose(t *testing.T) {
	for _, tt := range []struct {
		said    string
		reason  Reason
		kind    weir.Kind
		message string // how it starts
	}{
		{"[mov,mp4 @ 0x55c31be311c0] moov atom not found\nfile:/w/d/in: Invalid data found when processing input", BadInput, weir.Invalid, sentenceProbe + ": the file is truncated"},
		{"[h264 @ 0x1] error while decoding MB 12 3\nConversion failed!", BadInput, weir.Invalid, sentenceProbe + ": [h264] error while decoding MB 12 3"},
		{"[mov @ 0x1] stream 0, offset 0x30: partial file\nfile:/w/d/in: Invalid data found", BadInput, weir.Invalid, sentenceProbe + ": [mov] stream 0"},
		{"Could not find codec parameters for stream 0 (Video: none): unknown codec", BadInput, weir.Invalid, InvalidSource + ": Could not find codec parameters for stream 0 (Video: none): unknown codec; weir reads MP4, MOV"},
		{"[hls @ 0x1] Format not on whitelist 'mov'\n/w/d/in: Invalid argument", BadInput, weir.Invalid, InvalidSource + ": playlists"},
		{"error while decoding MB 1 2\nav_interleaved_write_frame(): No space left on device", noSpace, weir.Full, sentenceStorage + ": the disk is full"},
		{"Error while filtering: Cannot allocate memory", OutOfMemory, weir.Internal, sentenceInternal + ": ffmpeg ran out of memory"},
		{"[h264 @ 0x1] get_buffer() failed\n[h264 @ 0x1] decode_slice_header error\nError while decoding stream #0:0: Invalid data found when processing input", OutOfMemory, weir.Internal, sentenceInternal + ": ffmpeg ran out of memory"},
		{"Error allocating the decoder context.", OutOfMemory, weir.Internal, sentenceInternal + ": ffmpeg ran out of memory"},
		{"[wmv2 @ 0x1] video_get_buffer: image parameters invalid\n[wmv2 @ 0x1] get_buffer() failed", BadInput, weir.Invalid, sentenceProbe + ": [wmv2] video_get_buffer"},
		{"Error initializing output stream 0:0 -- Error while opening encoder for output stream #0:0 - maybe incorrect parameters", unknown, weir.Internal, sentenceInternal + ": ffmpeg could not start an encoder"},
		{"terminate called after throwing an instance of 'std::bad_alloc'", OutOfMemory, weir.Internal, sentenceInternal + ": ffmpeg ran out of memory"},
		{"panic: libc_musl.go:249:mustMalloc\nTODO OOM", OutOfMemory, weir.Internal, sentenceInternal + ": ffmpeg ran out of memory"},
		{"runtime/cgo: pthread_create failed: Resource temporarily unavailable\nSIGABRT: abort", OutOfMemory, weir.Internal, sentenceInternal + ": ffmpeg ran out of memory"},
		{"[matroska @ 0x1] Number of streams exceeds max_streams parameter (1000), see the documentation if you wish to increase it\nfile:/w/d/in: Cannot allocate memory", BadInput, weir.Invalid, sentenceProbe + ": the file has more than 1000 tracks"},
		{"Unknown encoder 'libx265'", missing, weir.Unavailable, sentenceInternal + ": the installed ffmpeg lacks"},
		{"No such filter: 'zscale'", missing, weir.Unavailable, sentenceInternal + ": the installed ffmpeg lacks"},
		{"weir sandbox: seccomp: function not implemented", noSandbox, weir.Internal, sentenceInternal + ": the sandbox"},
		{"file:/w/d/oom.mov: Invalid data found when processing input", BadInput, weir.Invalid, sentenceProbe + ": this is not a video or audio file that can be read, or it is damaged; weir reads MP4, MOV"},
		{"something new", unknown, weir.Internal, sentenceInternal + ": ffmpeg failed"},
		{"", unknown, weir.Internal, sentenceInternal + ": ffmpeg failed"},
	} {
		t.Run(string(tt.reason), func(t *testing.T) {
			var said tail
			said.read(strings.NewReader(tt.said))
			err := diagnose("ffmpeg", errors.New("exit status 1"), &said, []string{"/w/d/in", "/w/d/oom.mov"})
			if ReasonOf(err) != tt.reason || weir.KindOf(err) != tt.kind {
				t.Errorf("%q is %q (%s), want %q (%s)", tt.said, ReasonOf(err), weir.KindOf(err), tt.reason, tt.kind)
			}
			message := errorMessages(t, err)
			if !strings.HasPrefix(message, tt.message) {
				t.Errorf("message = %q, want it to start with %q", message, tt.message)
			}
			if strings.Contains(message, "/w/") || strings.Contains(message, "0x1]") {
				t.Errorf("message = %q shows paths or addresses", message)
			}
			if tt.said != "" && !strings.Contains(err.Error(), strings.Split(tt.said, "\n")[0]) {
				t.Errorf("error = %q does not tell the operator what ffmpeg said", err)
			}
		})
	}
}

func TestReasonOfOthers(t *testing.T) {
	if got := ReasonOf(errors.New("x")); got != "" {
		t.Errorf("reason = %q, want none", got)
	}
}

func TestStderrIsBounded(t *testing.T) {
	err := misbehaving(t).Run(t.Context(), Command{Args: []string{"helper", "babble"}})
	f, ok := errors.AsType[*failure](err)
	if !ok {
		t.Fatalf("error = %v", err)
	}
	lines := strings.Split(f.stderr, "\n")
	if len(lines) != keepFirst+1+keepLast || len(f.stderr) > (keepFirst+keepLast)*(keepBytes+1)+100 {
		t.Errorf("%d lines, %d bytes kept", len(lines), len(f.stderr))
	}
	if lines[0] != "0 " || !strings.HasPrefix(lines[keepFirst], "(") || !strings.HasPrefix(lines[len(lines)-1], "19999 ") {
		t.Errorf("kept %q, %q … %q", lines[0], lines[keepFirst], lines[len(lines)-1])
	}
	for i, line := range lines[keepFirst+1:] {
		if want := fmt.Sprint(20_000-keepLast+i) + " "; !strings.HasPrefix(line, want) {
			t.Errorf("line %d of the tail is %.20q, want %q", i, line, want)
		}
	}
}
