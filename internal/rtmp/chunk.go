package rtmp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Types of messages. The chunk reader applies the first two itself and does not return them.
const (
	messageChunkSize   = 1
	messageAbort       = 2
	messageAck         = 3
	messageUserControl = 4
	messageWindow      = 5
	messageBandwidth   = 6
	messageAudio       = 8
	messageVideo       = 9
	messageData        = 18
	messageCommand     = 20
)

const (
	defaultChunkSize = 128
	// maxChunkStreams bounds the messages that are unfinished at the same time. Encoders use four
	// or five chunk streams.
	maxChunkStreams = 64
	// firstBuffer bounds the buffer of a message before its bytes arrive: announcing a length costs
	// the sender nothing.
	firstBuffer = 64 << 10
	// The reader keeps the buffers of messages for later ones, except small buffers: at most
	// maxSpare of them, with maxSpareBytes in total.
	maxSpare      = 8
	maxSpareBytes = 1 << 20
	minSpare      = 4 << 10
	// extendedTime in the three bytes of a time says that the time follows in four bytes. It is
	// also the largest length of a message.
	extendedTime = 0xFFFFFF
)

type message struct {
	kind byte
	time uint32 // milliseconds; wraps around
	body []byte // owned by the receiver
}

// chunkReader assembles messages from chunks. It buffers at most limit bytes.
type chunkReader struct {
	from       *bufio.Reader
	size       int // of a chunk, as the sender set it
	limit      int // of one message, and of all unfinished messages together; it only grows
	unfinished int // bytes of unfinished messages
	streams    map[uint32]*chunkStream
	spare      [][]byte // buffers for later messages
	spareBytes int
}

// chunkStream carries one message after the other.
type chunkStream struct {
	kind     byte
	time     uint32
	delta    uint32 // the last time or difference in a header
	extended bool   // it was an extended time
	length   int
	body     []byte
	started  bool // a message is unfinished
}

func newChunkReader(from *bufio.Reader, limit int) *chunkReader {
	return &chunkReader{from: from, size: defaultChunkSize, limit: limit, streams: map[uint32]*chunkStream{}}
}

func (r *chunkReader) next() (message, error) {
	for {
		stream, err := r.header()
		if err != nil {
			return message{}, err
		}
		if err := r.fill(stream); err != nil {
			return message{}, err
		}
		if len(stream.body) < stream.length {
			continue
		}
		m := message{stream.kind, stream.time, stream.body}
		r.drop(stream)
		switch m.kind {
		case messageChunkSize:
			err = r.resize(m.body)
		case messageAbort:
			err = r.abort(m.body)
		default:
			return m, nil
		}
		if err != nil {
			return message{}, err
		}
	}
}

// header reads the header of a chunk and returns its chunk stream.
func (r *chunkReader) header() (*chunkStream, error) {
	first, err := r.from.ReadByte()
	if err != nil {
		return nil, err // io.EOF here is the end of the connection between chunks
	}
	format, id := first>>6, uint32(first&0x3F)
	if id < 2 { // the id follows in one byte, or in two
		b, err := r.bytes(int(id) + 1)
		if err != nil {
			return nil, err
		}
		id = 64 + uint32(b[0])
		if len(b) == 2 {
			id += uint32(b[1]) << 8
		}
	}
	stream := r.streams[id]
	if stream == nil {
		if format > 1 {
			return nil, errors.New("a chunk continues a message that was not started")
		}
		if len(r.streams) == maxChunkStreams {
			return nil, LimitError(fmt.Sprintf("more than %d chunk streams", maxChunkStreams))
		}
		stream = &chunkStream{}
		r.streams[id] = stream
	}
	if format == 3 {
		return stream, r.resume(stream)
	}
	return stream, r.start(stream, format)
}

// start reads the rest of the header that starts a message.
func (r *chunkReader) start(s *chunkStream, format byte) error {
	if s.started {
		return errors.New("a message starts before the previous one has ended")
	}
	b, err := r.bytes([]int{11, 7, 3}[format])
	if err != nil {
		return err
	}
	at := uint24(b)
	if format < 2 {
		s.length, s.kind = int(uint24(b[3:])), b[6]
		if s.length > r.limit {
			return LimitError(fmt.Sprintf("a message of %d bytes; %d are allowed here", s.length, r.limit))
		}
	}
	if s.extended = at == extendedTime; s.extended {
		if b, err = r.bytes(4); err != nil {
			return err
		}
		at = binary.BigEndian.Uint32(b)
	}
	s.delta = at
	if format == 0 {
		s.time = at
	} else {
		s.time += at
	}
	s.started = true
	return nil
}

// resume reads the rest of a header of format 3. The chunk continues a message, or starts one with
// the length and the difference in time of the message before it.
func (r *chunkReader) resume(s *chunkStream) error {
	if !s.started {
		s.time += s.delta
		s.started = true
	}
	if !s.extended {
		return nil
	}
	// Only some encoders repeat the extended time here.
	b, err := r.from.Peek(4)
	if err != nil {
		return unexpected(err)
	}
	if binary.BigEndian.Uint32(b) == s.delta {
		_, err = r.from.Discard(4)
	}
	return err
}

func (r *chunkReader) fill(s *chunkStream) (err error) {
	n := min(r.size, s.length-len(s.body))
	if r.unfinished+n > r.limit {
		return LimitError(fmt.Sprintf("more than %d bytes of unfinished messages", r.limit))
	}
	if s.body == nil {
		s.body = r.buffer(s.length)
	}
	before := len(s.body)
	s.body, err = readMore(r.from, s.body, n, s.length)
	r.unfinished += len(s.body) - before
	return err
}

// readMore appends n bytes to a body of which length bytes are announced. The body grows as its
// bytes arrive.
func readMore(from io.Reader, body []byte, n, length int) ([]byte, error) {
	for n > 0 {
		if len(body) == cap(body) {
			body = append(make([]byte, 0, min(length, 2*cap(body))), body...)
		}
		start := len(body)
		some := min(n, cap(body)-start)
		body = body[:start+some]
		if _, err := io.ReadFull(from, body[start:]); err != nil {
			return body, unexpected(err)
		}
		n -= some
	}
	return body, nil
}

// buffer returns an empty buffer for a message. A new one is a little larger than needed, so that
// later messages fit.
func (r *chunkReader) buffer(length int) []byte {
	if length < minSpare {
		return make([]byte, 0, length)
	}
	best := -1
	for i, b := range r.spare {
		if cap(b) >= length && (best < 0 || cap(b) < cap(r.spare[best])) {
			best = i
		}
	}
	if best < 0 {
		return make([]byte, 0, min(length+length/4, firstBuffer))
	}
	body := r.spare[best]
	r.spare, r.spareBytes = slices.Delete(r.spare, best, best+1), r.spareBytes-cap(body)
	return body[:0]
}

// reuse takes back a body, or a part of it, that is not used any more.
func (r *chunkReader) reuse(body []byte) {
	if cap(body) >= minSpare && len(r.spare) < maxSpare && r.spareBytes+cap(body) <= maxSpareBytes {
		r.spare, r.spareBytes = append(r.spare, body), r.spareBytes+cap(body)
	}
}

func (r *chunkReader) drop(s *chunkStream) {
	r.unfinished -= len(s.body)
	s.body, s.started = nil, false
}

// resize applies the message that sets the chunk size.
func (r *chunkReader) resize(body []byte) error {
	if len(body) < 4 {
		return errors.New("a chunk size of less than 4 bytes")
	}
	size := binary.BigEndian.Uint32(body)
	if size == 0 || size > 1<<31-1 {
		return fmt.Errorf("a chunk size of %d", size)
	}
	r.size = int(min(size, extendedTime)) // no message is longer
	return nil
}

// abort applies the message that drops the unfinished message of a chunk stream.
func (r *chunkReader) abort(body []byte) error {
	if len(body) < 4 {
		return errors.New("an abort of less than 4 bytes")
	}
	if s := r.streams[binary.BigEndian.Uint32(body)]; s != nil {
		r.drop(s)
	}
	return nil
}

// bytes returns the next few bytes, which are valid until the next read.
func (r *chunkReader) bytes(n int) ([]byte, error) {
	b, err := r.from.Peek(n)
	if err != nil {
		return nil, unexpected(err)
	}
	_, err = r.from.Discard(n)
	return b, err
}

// The chunk streams that our messages go out on.
const (
	controlChunks = 2
	commandChunks = 3
	audioChunks   = 4
	videoChunks   = 6
)

// chunkWriter splits messages into chunks.
type chunkWriter struct {
	to      io.Writer
	size    int // of a chunk, as the other end knows it
	streams [videoChunks + 1]struct {
		used   bool
		stream uint32 // of the last message
		time   uint32
	}
	buffer []byte
}

// write sends a message. Its body is m.body behind head.
func (w *chunkWriter) write(chunks byte, stream uint32, m message, head []byte) error {
	length := len(head) + len(m.body)
	if length > extendedTime {
		return fmt.Errorf("a message of %d bytes does not fit into RTMP", length)
	}
	s := &w.streams[chunks]
	b, at := w.buffer[:0], m.time-s.time
	short := s.used && s.stream == stream && int32(at) >= 0
	if short {
		b = append(b, 1<<6|chunks) // the difference in time, and the stream of the last message
	} else {
		b, at = append(b, chunks), m.time
	}
	s.used, s.stream, s.time = true, stream, m.time
	b = appendUint24(appendUint24(b, min(at, extendedTime)), uint32(length))
	if b = append(b, m.kind); !short {
		b = binary.LittleEndian.AppendUint32(b, stream)
	}
	for {
		if at >= extendedTime {
			b = binary.BigEndian.AppendUint32(b, at)
		}
		first := min(w.size, len(head))
		rest := min(w.size-first, len(m.body))
		b = append(append(b, head[:first]...), m.body[:rest]...)
		head, m.body = head[first:], m.body[rest:]
		ends := len(head)+len(m.body) == 0
		if ends || len(b) >= firstBuffer {
			if _, err := w.to.Write(b); err != nil {
				return err
			}
			b = b[:0]
		}
		if w.buffer = b; ends {
			return nil
		}
		b = append(b, 3<<6|chunks)
	}
}

func uint24(b []byte) uint32 { return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]) }

func appendUint24(b []byte, n uint32) []byte { return append(b, byte(n>>16), byte(n>>8), byte(n)) }

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
