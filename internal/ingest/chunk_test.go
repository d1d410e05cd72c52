package ingest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gortmplib/pkg/bytecounter"
	"github.com/bluenviron/gortmplib/pkg/rawmessage"
	"github.com/google/go-cmp/cmp"
)

// messagesIn returns the messages in some bytes, and the error that ends them.
func messagesIn(limit int, data ...[]byte) (all []message, err error) {
	r := newChunkReader(bufio.NewReaderSize(bytes.NewReader(bytes.Join(data, nil)), 64), limit)
	for {
		m, err := r.next()
		if err != nil {
			return all, err
		}
		all = append(all, m)
	}
}

func TestChunks(t *testing.T) {
	long := bytes.Repeat([]byte{7}, 130)
	for _, tt := range []struct {
		name string
		data [][]byte
		want []message
		err  string // "" = the end comes between messages
	}{
		{"one", [][]byte{{4, 0, 0, 5, 0, 0, 2, 8, 1, 0, 0, 0, 'a', 'b'}}, []message{{8, 5, []byte("ab")}}, ""},
		{
			"in two chunks, with another one between",
			[][]byte{
				{4, 0, 0, 5, 0, 0, 130, 9, 1, 0, 0, 0},
				long[:128],
				{5, 0, 0, 6, 0, 0, 1, 8, 1, 0, 0, 0, 'a'},
				{0xC4},
				long[128:],
			},
			[]message{{8, 6, []byte("a")}, {9, 5, long}},
			"",
		},
		{
			"headers get shorter",
			[][]byte{
				{4, 0, 0, 100, 0, 0, 1, 8, 1, 0, 0, 0, 'a'},
				{0x44, 0, 0, 20, 0, 0, 2, 9, 'b', 'c'},
				{0x84, 0, 0, 30, 'd', 'e'},
				{0xC4, 'f', 'g'},
			},
			[]message{{8, 100, []byte("a")}, {9, 120, []byte("bc")}, {9, 150, []byte("de")}, {9, 180, []byte("fg")}},
			"",
		},
		{"the time of the first is the step to the next", [][]byte{
			{4, 0, 0, 23, 0, 0, 1, 8, 1, 0, 0, 0, 'a'}, {0xC4, 'b'},
		}, []message{{8, 23, []byte("a")}, {8, 46, []byte("b")}}, ""},
		{
			"long time, repeated",
			[][]byte{
				{4, 0xFF, 0xFF, 0xFF, 0, 0, 130, 9, 1, 0, 0, 0, 1, 2, 3, 4},
				long[:128],
				{0xC4, 1, 2, 3, 4},
				long[128:],
			},
			[]message{{9, 0x01020304, long}},
			"",
		},
		{
			"long time, not repeated",
			[][]byte{
				{4, 0xFF, 0xFF, 0xFF, 0, 0, 134, 9, 1, 0, 0, 0, 1, 2, 3, 4},
				long[:128],
				{0xC4},
				long[:6],
			},
			[]message{{9, 0x01020304, append(bytes.Clone(long), 7, 7, 7, 7)}},
			"",
		},
		{"many chunk streams", [][]byte{
			{0, 10, 0, 0, 1, 0, 0, 1, 8, 1, 0, 0, 0, 'a'},
			{1, 0, 1, 0, 0, 2, 0, 0, 1, 8, 1, 0, 0, 0, 'b'},
			{0xC0, 10, 'c'},
			{0xC1, 0, 1, 'd'},
		}, []message{{8, 1, []byte("a")}, {8, 2, []byte("b")}, {8, 2, []byte("c")}, {8, 4, []byte("d")}}, ""},
		{"larger chunks", [][]byte{
			{2, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0, 4, 0},
			{4, 0, 0, 5, 0, 0, 130, 9, 1, 0, 0, 0},
			long,
		}, []message{{9, 5, long}}, ""},
		{"given up", [][]byte{
			{4, 0, 0, 5, 0, 0, 130, 9, 1, 0, 0, 0},
			long[:128],
			{2, 0, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 0, 0, 0, 4},
			{4, 0, 0, 6, 0, 0, 1, 9, 1, 0, 0, 0, 'a'},
		}, []message{{9, 6, []byte("a")}}, ""},
		{"empty", [][]byte{{4, 0, 0, 5, 0, 0, 0, 8, 1, 0, 0, 0}}, []message{{8, 5, []byte{}}}, ""},
		{"cut in a header", [][]byte{{4, 0, 0, 5}}, nil, "unexpected EOF"},
		{"cut in a body", [][]byte{{4, 0, 0, 5, 0, 0, 2, 8, 1, 0, 0, 0, 'a'}}, nil, "unexpected EOF"},
		{"goes on with nothing", [][]byte{{0xC4, 'a'}}, nil, "was not begun"},
		{"begins within a message", [][]byte{{4, 0, 0, 5, 0, 0, 130, 9, 1, 0, 0, 0}, long[:128], {4, 0, 0, 5, 0, 0, 1, 9, 1, 0, 0, 0, 1}}, nil, "before the one before it has ended"},
		{"too long", [][]byte{{4, 0, 0, 5, 0, 4, 1, 8, 1, 0, 0, 0}}, nil, "a message of 1025 bytes"},
		{"no size", [][]byte{{2, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0}}, nil, "a chunk size of 0"},
		{"negative size", [][]byte{{2, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0x80, 0, 0, 0}}, nil, "a chunk size of 2147483648"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := messagesIn(1024, tt.data...)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(message{})); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
			if tt.err == "" && !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

// Room that was given back is used for the next message that fits into it, and no more of
// it is kept than a few.
func TestChunksUseRoomAgain(t *testing.T) {
	r := newChunkReader(nil, 1<<20)
	small, large := make([]byte, leastSpare), make([]byte, 100_000)
	r.reuse(make([]byte, leastSpare-1))
	r.reuse(large)
	r.reuse(small)
	same := func(a, b []byte) bool { return &a[:1][0] == &b[:1][0] }
	if got := r.room(leastSpare); len(got) != 0 || !same(got, small) {
		t.Errorf("a message of %d bytes gets room for %d", leastSpare, cap(got))
	}
	if got := r.room(100); cap(got) != 100 {
		t.Errorf("a message of 100 bytes gets room for %d", cap(got))
	}
	if got := r.room(100_001); cap(got) != atOnce {
		t.Errorf("a message of 100001 bytes gets room for %d at first, want %d", cap(got), atOnce)
	}
	if got := r.room(50_000); !same(got, large) {
		t.Errorf("a message of 50000 bytes gets room for %d", cap(got))
	}
	for range 10 {
		r.reuse(make([]byte, leastSpare))
	}
	if len(r.spare) != maxSpare || r.spareBytes != maxSpare*leastSpare {
		t.Errorf("%d are kept, of %d bytes, want %d", len(r.spare), r.spareBytes, maxSpare)
	}
	r = newChunkReader(nil, 1<<20)
	for range 3 {
		r.reuse(make([]byte, maxSpareBytes/2))
	}
	if len(r.spare) != 2 {
		t.Errorf("%d large ones are kept, want 2", len(r.spare))
	}
}

// What is under way costs no more than the limit, and what is only announced nothing.
func TestChunkLimits(t *testing.T) {
	begin := func(stream byte, length int) []byte {
		b := []byte{stream, 0, 0, 5, 0, 0, 0, 9, 1, 0, 0, 0}
		b[4], b[5], b[6] = byte(length>>16), byte(length>>8), byte(length)
		return b
	}
	t.Run("under way", func(t *testing.T) {
		var data [][]byte
		for stream := range byte(60) {
			data = append(data, begin(3+stream, 1000), make([]byte, 128))
		}
		if _, err := messagesIn(1024, data...); err == nil || !strings.Contains(err.Error(), "that do not end") {
			t.Errorf("error %v, want one of messages that do not end", err)
		}
	})
	t.Run("chunk streams", func(t *testing.T) {
		var data [][]byte
		for stream := range byte(100) {
			data = append(data, []byte{0, stream, 0, 0, 5, 0, 0, 0, 9, 1, 0, 0, 0})
		}
		if _, err := messagesIn(1024, data...); err == nil || !strings.Contains(err.Error(), "more than 64 chunk streams") {
			t.Errorf("error %v, want one of chunk streams", err)
		}
	})
	t.Run("announced", func(t *testing.T) {
		size := binary.BigEndian.AppendUint32([]byte{2, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0}, noTime)
		r := newChunkReader(bufio.NewReader(bytes.NewReader(bytes.Join([][]byte{size, begin(3, 8<<20), make([]byte, 100<<10)}, nil))), 8<<20)
		if _, err := r.next(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("error %v, want an unexpected end", err)
		}
		if got := cap(r.streams[3].body); got > 256<<10 {
			t.Errorf("%d bytes are kept for 100 KiB", got)
		}
	})
}

func FuzzChunks(f *testing.F) {
	var seed bytes.Buffer
	w := rawmessage.NewWriter(&seed, bytecounter.NewWriter(&seed), false)
	for i := range 5 {
		m := &rawmessage.Message{ChunkStreamID: 4, Timestamp: time.Duration(i) * 40 * time.Millisecond, Type: 9, MessageStreamID: 1, Body: make([]byte, 200*i)}
		if err := w.Write(m); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(seed.Bytes())
	f.Add([]byte{4, 0xFF, 0xFF, 0xFF, 0, 0, 130, 9, 1, 0, 0, 0, 1, 2, 3, 4})
	f.Add([]byte{2, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 0, 0, 0, 4})
	f.Fuzz(func(t *testing.T, data []byte) {
		const limit = 1 << 10
		r := newChunkReader(bufio.NewReader(bytes.NewReader(data)), limit)
		for {
			m, err := r.next()
			kept := 0
			for _, s := range r.streams {
				kept += len(s.body)
			}
			if kept != r.unfinished || kept > limit || len(m.body) > limit {
				t.Fatalf("%d bytes under way, counted as %d, a message of %d bytes; %d are allowed", kept, r.unfinished, len(m.body), limit)
			}
			if err != nil {
				return
			}
		}
	})
}

// The library writes what we read.
func TestChunksOfTheLibrary(t *testing.T) {
	var data bytes.Buffer
	w := rawmessage.NewWriter(&data, bytecounter.NewWriter(&data), false)
	var want []message
	for i, size := range []int{1, 128, 129, 5000, 5000, 5000, 70000, 3} {
		body := bytes.Repeat([]byte{byte(i)}, size)
		at := uint32(0xFFFFF0 + i*8) // the time outgrows three bytes
		if err := w.Write(&rawmessage.Message{ChunkStreamID: 4, Timestamp: time.Duration(at) * time.Millisecond, Type: 9, MessageStreamID: 1, Body: body}); err != nil {
			t.Fatal(err)
		}
		want = append(want, message{9, at, body})
	}
	got, err := messagesIn(1<<20, data.Bytes())
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(message{})); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

func TestUnwrapper(t *testing.T) {
	var u unwrapper
	for _, tt := range []struct {
		sent uint32
		want time.Duration
	}{
		{1<<32 - 20, (1<<32 - 20) * time.Millisecond},
		{10, (1<<32 + 10) * time.Millisecond},
		{1<<32 - 5, (1<<32 - 5) * time.Millisecond}, // the other track is a little behind
		{40, (1<<32 + 40) * time.Millisecond},
	} {
		if got := u.at(tt.sent); got != tt.want {
			t.Errorf("%d is at %v, want %v", tt.sent, got, tt.want)
		}
	}
}
