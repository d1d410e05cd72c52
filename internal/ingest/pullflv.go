package ingest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"time"

	"weir/internal/codec"
	"weir/internal/weir"
)

const (
	flvAudio = 8
	flvVideo = 9
)

// readFLV reads a file or a live stream in FLV, whose tags are messages of RTMP.
func (s *pullSource) readFLV(ctx context.Context, a *answer, in *bufio.Reader) error {
	var clock unwrapper
	from := s.resumes(a)
	return s.throughWith(a, readFLV(in, func(video bool, milliseconds uint32, body []byte) error {
		at := clock.at(milliseconds)
		s.reached(a, max(at, from))
		return s.tag(ctx, video, body, at, from > 0 && at < from)
	}))
}

// tag hands the packets of a tag on. What was on air before is left out, but for what
// tells about the codecs.
func (s *pullSource) tag(ctx context.Context, video bool, body []byte, at time.Duration, before bool) error {
	if len(body) == 0 {
		return nil
	}
	take := func(p codec.Packet) error {
		switch {
		case p.Config:
			return s.addNow(ctx, p, at)
		case before:
			return ctx.Err()
		}
		return s.add(ctx, p, at)
	}
	if video {
		return videoTag(body, take)
	}
	return audioTag(body, take)
}

// readFLV hands the tags of audio and video to take.
func readFLV(in *bufio.Reader, take func(video bool, milliseconds uint32, body []byte) error) error {
	head := make([]byte, 9)
	if _, err := io.ReadFull(in, head); err != nil {
		return cutOff(err)
	}
	offset := int64(head[5])<<24 | int64(uint24(head[6:]))
	if string(head[:3]) != "FLV" || offset < 9 || offset > 1<<16 {
		return weir.Errorf(weir.Invalid, "the FLV file has a head that can't be read")
	}
	if _, err := in.Discard(int(offset) - 9 + 4); err != nil {
		return cutOff(err)
	}
	for {
		tag := make([]byte, 11)
		if _, err := io.ReadFull(in, tag[:1]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil // between tags: the end
			}
			return err
		}
		if _, err := io.ReadFull(in, tag[1:]); err != nil {
			return cutOff(err)
		}
		size := int64(uint24(tag[1:]))
		if size > maxMessage {
			return weir.Errorf(weir.Invalid, "the FLV file has a tag of %d bytes; %d are allowed", size, maxMessage)
		}
		body, err := readAll(io.LimitReader(in, size), size)
		if err == nil && int64(len(body)) < size {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return cutOff(err)
		}
		if kind := tag[0] & 31; kind == flvAudio || kind == flvVideo {
			if err := take(kind == flvVideo, uint32(tag[7])<<24|uint24(tag[4:]), body); err != nil {
				return unreadable(err)
			}
		}
		if _, err := in.Discard(4); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// cutOff is the error of a source that ends where more must come.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return weir.Wrap(weir.Upstream, err, "the source ends in the middle of a frame")
	}
	return err
}

// unreadable makes an error about media one that the owner may see.
func unreadable(err error) error {
	if _, ok := errors.AsType[*weir.Error](err); ok || err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return weir.Wrap(weir.Invalid, err, "the media of the source can't be read: %v", err)
}
