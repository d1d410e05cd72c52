package ingest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Types of messages. Those that the chunk reader itself obeys are not handed on.
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
	// maxChunkStreams is how many messages may be under way at once. Encoders use four
	// or five.
	maxChunkStreams = 64
	// atOnce is how much room a message gets before it is there: what is announced costs
	// the sender nothing.
	atOnce = 64 << 10
	// The room of messages that were read is used again, but for that of small ones: so many
	// of them, of so many bytes together.
	maxSpare      = 8
	maxSpareBytes = 1 << 20
	leastSpare    = 4 << 10
	// noTime stands in the three bytes of a time that does not fit there.
	noTime = 0xFFFFFF
)

// message is one of RTMP, put together of its chunks.
type message struct {
	kind byte
	time uint32 // milliseconds, running over
	body []byte // whoever gets it owns it
}

// chunkReader puts messages together. It keeps no more than limit bytes, whatever it
// is sent.
type chunkReader struct {
	from       *bufio.Reader
	size       int // of chunks, as the sender says
	limit      int // of a message, and of all together that are under way
	unfinished int // bytes of messages that are under way
	streams    map[uint32]*chunkStream
	spare      [][]byte // room for messages that was used before
	spareBytes int      // of it
}

// chunkStream is where the chunks of one message after the other come in.
type chunkStream struct {
	kind     byte
	time     uint32
	delta    uint32 // to the next message, if that does not tell
	extended bool   // the time did not fit and stands behind the header of each chunk
	length   int
	body     []byte
	underWay bool
}

func newChunkReader(from *bufio.Reader, limit int) *chunkReader {
	return &chunkReader{from: from, size: 128, limit: limit, streams: map[uint32]*chunkStream{}}
}

// next returns the next message.
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

// header reads the header of a chunk and returns the stream that its bytes belong to.
func (r *chunkReader) header() (*chunkStream, error) {
	first, err := r.from.ReadByte()
	if err != nil {
		return nil, err // between chunks: it may be a plain end
	}
	format, id := first>>6, uint32(first&0x3F)
	switch id {
	case 0:
		b, err := r.bytes(1)
		if err != nil {
			return nil, err
		}
		id = 64 + uint32(b[0])
	case 1:
		b, err := r.bytes(2)
		if err != nil {
			return nil, err
		}
		id = 64 + uint32(b[0]) + uint32(b[1])<<8
	}
	stream := r.streams[id]
	if stream == nil {
		if format > 1 {
			return nil, errors.New("a chunk goes on with a message that was not begun")
		}
		if len(r.streams) == maxChunkStreams {
			return nil, fmt.Errorf("more than %d chunk streams", maxChunkStreams)
		}
		stream = &chunkStream{}
		r.streams[id] = stream
	}
	if format == 3 {
		return stream, r.goOn(stream)
	}
	return stream, r.begin(stream, format)
}

// begin reads the header of the first chunk of a message.
func (r *chunkReader) begin(s *chunkStream, format byte) error {
	if s.underWay {
		return errors.New("a message begins before the one before it has ended")
	}
	b, err := r.bytes([]int{11, 7, 3}[format])
	if err != nil {
		return err
	}
	at := uint24(b)
	if format < 2 {
		s.length, s.kind = int(uint24(b[3:])), b[6]
		if s.length > r.limit {
			return fmt.Errorf("a message of %d bytes; %d are allowed here", s.length, r.limit)
		}
	}
	if s.extended = at == noTime; s.extended {
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
	s.underWay = true
	return nil
}

// goOn reads what follows the first byte of a chunk without a header: the next one of a
// message, or the first of a message like the one before it.
func (r *chunkReader) goOn(s *chunkStream) error {
	if !s.underWay {
		// The length was checked against the limit of its time, which only grows.
		s.time += s.delta
		s.underWay = true
	}
	if !s.extended {
		return nil
	}
	// Some encoders repeat the time here, some do not.
	b, err := r.from.Peek(4)
	if err != nil {
		return unexpected(err)
	}
	if binary.BigEndian.Uint32(b) == s.delta {
		_, err = r.from.Discard(4)
	}
	return err
}

// fill reads the bytes of a chunk.
func (r *chunkReader) fill(s *chunkStream) error {
	n := min(r.size, s.length-len(s.body))
	if r.unfinished+n > r.limit {
		return fmt.Errorf("more than %d bytes of messages that do not end", r.limit)
	}
	if s.body == nil {
		s.body = r.room(s.length)
	}
	for n > 0 {
		// Room is made as bytes come, not as they are promised.
		if len(s.body) == cap(s.body) {
			bigger := make([]byte, len(s.body), min(s.length, 2*cap(s.body)))
			copy(bigger, s.body)
			s.body = bigger
		}
		start := len(s.body)
		some := min(n, cap(s.body)-start)
		s.body, r.unfinished = s.body[:start+some], r.unfinished+some
		if _, err := io.ReadFull(r.from, s.body[start:]); err != nil {
			return unexpected(err)
		}
		n -= some
	}
	return nil
}

// room returns an empty slice for a message of a length, which may still have to grow. It
// is a little larger than that, so that others find room in it later.
func (r *chunkReader) room(length int) []byte {
	if length < leastSpare {
		return make([]byte, 0, length)
	}
	best := -1
	for i, b := range r.spare {
		if cap(b) >= length && (best < 0 || cap(b) < cap(r.spare[best])) {
			best = i
		}
	}
	if best < 0 {
		return make([]byte, 0, min(length+length/4, atOnce))
	}
	body := r.spare[best]
	r.spare, r.spareBytes = slices.Delete(r.spare, best, best+1), r.spareBytes-cap(body)
	return body[:0]
}

// reuse takes a body back, or a part of it, that nobody needs any more.
func (r *chunkReader) reuse(body []byte) {
	if cap(body) >= leastSpare && len(r.spare) < maxSpare && r.spareBytes+cap(body) <= maxSpareBytes {
		r.spare, r.spareBytes = append(r.spare, body), r.spareBytes+cap(body)
	}
}

// drop forgets the message that is under way.
func (r *chunkReader) drop(s *chunkStream) {
	r.unfinished -= len(s.body)
	s.body, s.underWay = nil, false
}

// resize obeys the message that sets the size of chunks.
func (r *chunkReader) resize(body []byte) error {
	if len(body) < 4 {
		return errors.New("a chunk size of less than 4 bytes")
	}
	size := binary.BigEndian.Uint32(body)
	if size == 0 || size > 1<<31-1 {
		return fmt.Errorf("a chunk size of %d", size)
	}
	r.size = int(min(size, noTime)) // no message is longer
	return nil
}

// abort obeys the message that gives up the message under way of a chunk stream.
func (r *chunkReader) abort(body []byte) error {
	if len(body) < 4 {
		return errors.New("an abort of less than 4 bytes")
	}
	if s := r.streams[binary.BigEndian.Uint32(body)]; s != nil {
		r.drop(s)
	}
	return nil
}

// bytes returns the next few bytes, which are good until the next read.
func (r *chunkReader) bytes(n int) ([]byte, error) {
	b, err := r.from.Peek(n)
	if err != nil {
		return nil, unexpected(err)
	}
	_, err = r.from.Discard(n)
	return b, err
}

func uint24(b []byte) uint32 { return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]) }

// unexpected is the error of an end that comes within something.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
