package rtmp

import (
	"bufio"
	"errors"
	"io"
	"time"

	"weir/internal/codec"
	"weir/internal/weir"
)

// ReadFLV gives the packets of an FLV file or stream to take, with the time of their tag. It
// returns nil at an end between tags, and io.ErrUnexpectedEOF at any other.
func ReadFLV(in *bufio.Reader, take func(codec.Packet, time.Duration) error) error {
	head := make([]byte, 9)
	if _, err := io.ReadFull(in, head); err != nil {
		return unexpected(err)
	}
	offset := int64(head[5])<<24 | int64(uint24(head[6:]))
	if string(head[:3]) != "FLV" || offset < 9 || offset > 1<<16 {
		return weir.Errorf(weir.Invalid, "the header of the FLV file can't be read")
	}
	const previousSize = 4 // each tag follows the size of the tag before it
	if _, err := in.Discard(int(offset) - len(head) + previousSize); err != nil {
		return unexpected(err)
	}
	var clock unwrapper
	tag := make([]byte, 11)
	for {
		if _, err := in.Peek(1); errors.Is(err, io.EOF) {
			return nil
		}
		if _, err := io.ReadFull(in, tag); err != nil {
			return unexpected(err)
		}
		size := int(uint24(tag[1:]))
		if size > maxMessage {
			return weir.Errorf(weir.Invalid, "the FLV file has a tag of %d bytes; %d are allowed", size, maxMessage)
		}
		body, err := readMore(in, make([]byte, 0, min(size, firstBuffer)), size, size)
		if err != nil {
			return err
		}
		if kind := tag[0] & 31; size > 0 && (kind == messageAudio || kind == messageVideo) {
			at := clock.at(uint32(tag[7])<<24 | uint24(tag[4:]))
			if err := readTag(kind, body, func(p codec.Packet) error { return take(p, at) }); err != nil {
				return err
			}
		}
		if _, err := in.Discard(previousSize); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}
