package rtmp

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
		{"aborted", [][]byte{
			{4, 0, 0, 5, 0, 0, 130, 9, 1, 0, 0, 0},
			long[:128],
			{2, 0, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 0, 0, 0, 4},
			{4, 0, 0, 6, 0, 0, 1, 9, 1, 0, 0, 0, 'a'},
		}, []message{{9, 6, []byte("a")}}, ""},
		{"empty", [][]byte{{4, 0, 0, 5, 0, 0, 0, 8, 1, 0, 0, 0}}, []message{{8, 5, []byte{}}}, ""},
		{"cut in a header", [][]byte{{4, 0, 0, 5}}, nil, "unexpected EOF"},
		{"cut in a body", [][]byte{{4, 0, 0, 5, 0, 0, 2, 8, 1, 0, 0, 0, 'a'}}, nil, "unexpected EOF"},
		{"goes on with nothing", [][]byte{{0xC4, 'a'}}, nil, "was not started"},
		{"begins within a message", [][]byte{{4, 0, 0, 5, 0, 0, 130, 9, 1, 0, 0, 0}, long[:128], {4, 0, 0, 5, 0, 0, 1, 9, 1, 0, 0, 0, 1}}, nil, "before the previous one has ended"},
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

// A buffer that was given back is used for the next message that fits into it, and only a few are
// kept.
func TestChunkBuffersAreReused(t *testing.T) {
	r := newChunkReader(nil, 1<<20)
	small, large := make([]byte, minSpare), make([]byte, 100_000)
	r.reuse(make([]byte, minSpare-1))
	r.reuse(large)
	r.reuse(small)
	same := func(a, b []byte) bool { return &a[:1][0] == &b[:1][0] }
	if got := r.buffer(minSpare); len(got) != 0 || !same(got, small) {
		t.Errorf("a message of %d bytes gets a buffer of %d", minSpare, cap(got))
	}
	if got := r.buffer(100); cap(got) != 100 {
		t.Errorf("a message of 100 bytes gets a buffer of %d", cap(got))
	}
	if got := r.buffer(100_001); cap(got) != firstBuffer {
		t.Errorf("a message of 100001 bytes gets a buffer of %d at first, want %d", cap(got), firstBuffer)
	}
	if got := r.buffer(50_000); !same(got, large) {
		t.Errorf("a message of 50000 bytes gets a buffer of %d", cap(got))
	}
	for range 10 {
		r.reuse(make([]byte, minSpare))
	}
	if len(r.spare) != maxSpare || r.spareBytes != maxSpare*minSpare {
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

// Unfinished messages take no more memory than the limit, and announced ones none.
func TestChunkLimits(t *testing.T) {
	begin := func(stream byte, length int) []byte {
		b := []byte{stream, 0, 0, 5, 0, 0, 0, 9, 1, 0, 0, 0}
		b[4], b[5], b[6] = byte(length>>16), byte(length>>8), byte(length)
		return b
	}
	t.Run("unfinished", func(t *testing.T) {
		var data [][]byte
		for stream := range byte(60) {
			data = append(data, begin(3+stream, 1000), make([]byte, 128))
		}
		if _, err := messagesIn(1024, data...); err == nil || !strings.Contains(err.Error(), "of unfinished messages") {
			t.Errorf("error %v, want one of unfinished messages", err)
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
		size := binary.BigEndian.AppendUint32([]byte{2, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0}, extendedTime)
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
				t.Fatalf("%d unfinished bytes, counted as %d, a message of %d bytes; %d are allowed", kept, r.unfinished, len(m.body), limit)
			}
			if err != nil {
				return
			}
		}
	})
}

// We read the chunks of a library, and it reads ours.
func TestChunksWithLibrary(t *testing.T) {
	for _, tt := range []struct {
		name  string
		start uint32
		size  int
	}{
		{"small chunks", 0, 128},
		{"large chunks", 0, 64 << 10},
		{"the time outgrows three bytes", extendedTime - 20, 128},
		{"the time wraps around", 1<<32 - 20, 5000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var theirs, ours bytes.Buffer
			library := rawmessage.NewWriter(&theirs, bytecounter.NewWriter(&theirs), false)
			library.SetChunkSize(uint32(tt.size))
			w := chunkWriter{to: &ours, size: tt.size}
			var want []message
			for i, size := range []int{1, 128, 129, 5000, 5000, 5000, 70000, 0, 3} {
				body := bytes.Repeat([]byte{byte(i)}, size)
				m := message{9, tt.start + uint32(i)*8, body}
				at := time.Duration(tt.start)*time.Millisecond + time.Duration(i)*8*time.Millisecond
				if err := library.Write(&rawmessage.Message{ChunkStreamID: 4, Timestamp: at, Type: m.kind, MessageStreamID: 1 << 24, Body: body}); err != nil {
					t.Fatal(err)
				}
				if err := w.write(4, 1, message{m.kind, m.time, body[size/3:]}, body[:size/3]); err != nil {
					t.Fatal(err)
				}
				want = append(want, m)
			}
			read := func(data []byte) (all []message) {
				r := newChunkReader(bufio.NewReader(bytes.NewReader(data)), 1<<20)
				r.size = tt.size
				for {
					m, err := r.next()
					if errors.Is(err, io.EOF) {
						return all
					}
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, m)
				}
			}
			unexported := cmp.Options{cmp.AllowUnexported(message{}), cmp.Comparer(bytes.Equal)}
			if diff := cmp.Diff(want, read(theirs.Bytes()), unexported); diff != "" {
				t.Errorf("written by the library, read by us (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, read(ours.Bytes()), unexported); diff != "" {
				t.Errorf("written and read by us (-want +got):\n%s", diff)
			}
			counted := bytecounter.NewReader(&ours)
			r := rawmessage.NewReader(counted, counted, func(uint32) error { return nil })
			if err := r.SetChunkSize(uint32(tt.size)); err != nil {
				t.Fatal(err)
			}
			var got []message
			for range want {
				m, err := r.Read()
				if err != nil {
					t.Fatal(err)
				}
				if m.ChunkStreamID != 4 || m.MessageStreamID != 1<<24 {
					t.Errorf("chunk stream %d, message stream %#x", m.ChunkStreamID, m.MessageStreamID)
				}
				got = append(got, message{m.Type, uint32(m.Timestamp / time.Millisecond), m.Body})
			}
			if diff := cmp.Diff(want, got, unexported); diff != "" {
				t.Errorf("written by us, read by the library (-want +got):\n%s", diff)
			}
		})
	}
}

// Times that go back, and other message streams, need a whole header.
func TestChunkHeaders(t *testing.T) {
	var data bytes.Buffer
	w := chunkWriter{to: &data, size: 128}
	for _, m := range []struct {
		stream, time uint32
	}{{1, 100}, {1, 140}, {1, 90}, {2, 95}, {2, 95}, {2, 95 + 1<<25}} {
		if err := w.write(5, m.stream, message{8, m.time, []byte("ab")}, nil); err != nil {
			t.Fatal(err)
		}
	}
	want := bytes.Join([][]byte{
		{5, 0, 0, 100, 0, 0, 2, 8, 1, 0, 0, 0, 'a', 'b'},
		{0x45, 0, 0, 40, 0, 0, 2, 8, 'a', 'b'},
		{5, 0, 0, 90, 0, 0, 2, 8, 1, 0, 0, 0, 'a', 'b'},
		{5, 0, 0, 95, 0, 0, 2, 8, 2, 0, 0, 0, 'a', 'b'},
		{0x45, 0, 0, 0, 0, 0, 2, 8, 'a', 'b'},
		{0x45, 0xFF, 0xFF, 0xFF, 0, 0, 2, 8, 2, 0, 0, 0, 'a', 'b'},
	}, nil)
	if !bytes.Equal(data.Bytes(), want) {
		t.Errorf("bytes\n% x, want\n% x", data.Bytes(), want)
	}
	if err := w.write(5, 1, message{body: make([]byte, 1<<24)}, nil); err == nil {
		t.Error("a message that is too long is written")
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
