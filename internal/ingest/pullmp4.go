package ingest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/weir"
)

const (
	// maxMoov is how long the table of a file may be: that of a film of many hours.
	maxMoov = 32 << 20
	// maxApart is how far apart audio and video of the same time may lie in a file.
	maxApart = 10 * time.Second
)

// packetOf returns what an MP4 file tells of a track before its samples, and the codec of
// those; ok is false for one that weir can't take.
func packetOf(t cmaf.Track) (config codec.Packet, ok bool) {
	c := t.Config()
	if codec.NewDecoder(c.Codec) == nil || len(c.Record) == 0 || c.Codec == codec.Opus && c.Channels > 2 {
		return codec.Packet{}, false
	}
	return codec.Packet{Kind: t.Kind, Codec: c.Codec, Config: true, Data: c.Record}, true
}

// usable returns what is told of the tracks that are taken, the first of each kind, by
// their positions; the others have none. promise is told which kinds there are. silent says
// why there is no audio, if there is some that can't be taken.
func (s *pullSource) usable(tracks []cmaf.Track, promise func(video, audio bool)) (configs []codec.Packet, silent string, err error) {
	configs = make([]codec.Packet, len(tracks))
	have := map[cmaf.Kind]bool{}
	for i, t := range tracks {
		config, ok := packetOf(t)
		if !ok || have[t.Kind] {
			s.log.Info("a track of the source is left out", "kind", t.Kind, "codec", t.Codec)
			if t.Kind == cmaf.Audio {
				silent = cmp.Or(t.Codec, "its coding") + " can't be taken; AAC, and Opus with one or two channels, can be"
			}
			continue
		}
		have[t.Kind], configs[i] = true, config
	}
	if have[cmaf.Audio] {
		silent = ""
	}
	if len(have) == 0 {
		return nil, "", weir.Errorf(weir.Invalid, "the file has no track that can be taken; H.264, HEVC and AV1 with AAC or Opus can be")
	}
	promise(have[cmaf.Video], have[cmaf.Audio])
	return configs, silent, nil
}

// withoutAudio says why there is no audio; "" = there is, or the source has none.
func (s *pullSource) withoutAudio(why string) {
	if why == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feed.without(why)
}

// announce takes the configurations of the tracks of a file that can be used, and returns
// them for each track.
func (s *pullSource) announce(ctx context.Context, tracks []cmaf.Track) ([]codec.Packet, error) {
	configs, silent, err := s.usable(tracks, s.promise)
	if err != nil {
		return nil, err
	}
	s.withoutAudio(silent)
	for _, config := range configs {
		if config.Config {
			if err := s.addNow(ctx, config, 0); err != nil {
				return nil, unreadable(err)
			}
		}
	}
	return configs, nil
}

// readMP4 reads a file: its head is in in already, the rest of it is at a.
func (s *pullSource) readMP4(ctx context.Context, w *web, a *answer, in *bufio.Reader) error {
	var at int64
	var media int64 // where the samples begin; 0 = not seen yet
	for {
		head, err := in.Peek(16)
		if len(head) < 8 {
			if err == nil || errors.Is(err, io.EOF) {
				err = weir.Errorf(weir.Invalid, "the MP4 file has no moov box, so nothing says what is in it")
			}
			return err
		}
		name, size := string(head[4:8]), int64(binary.BigEndian.Uint32(head))
		if size == 1 && len(head) == 16 {
			size = int64(binary.BigEndian.Uint64(head[8:]))
		}
		switch {
		case name == "moov" && size >= 8 && size <= maxMoov:
			moov, err := readAll(io.LimitReader(in, size), size)
			if err != nil {
				return err
			}
			if int64(len(moov)) < size {
				return cutOff(io.ErrUnexpectedEOF)
			}
			return s.readMovie(ctx, w, a, in, moov, at+size, media)
		case name == "mdat" && (size >= 8 || size == 0):
			if size == 0 {
				return weir.Errorf(weir.Invalid, "the MP4 file has no moov box, so nothing says what is in it")
			}
			// The table is behind the media: it is fetched by itself first.
			media = at
			rest, err := w.get(ctx, a.from, at+size, 0)
			if err != nil {
				return err
			}
			defer rest.Close()
			a.Close()
			a, in = rest, bufio.NewReaderSize(rest, 64<<10)
			at += size
		case size >= 8 && size < 1<<40:
			if _, err := io.CopyN(io.Discard, in, size); err != nil {
				return cutOff(err)
			}
			at += size
		default:
			return weir.Errorf(weir.Invalid, "the MP4 file has a box %q of %d bytes, which can't be read", name, size)
		}
	}
}

// readMovie reads the samples that a moov box tells of. The next byte of in is that at
// in the file.
func (s *pullSource) readMovie(ctx context.Context, w *web, a *answer, in *bufio.Reader, moov []byte, at, media int64) error {
	body := moov[8:]
	if binary.BigEndian.Uint32(moov) == 1 && len(moov) >= 16 {
		body = moov[16:]
	}
	m, err := cmaf.ReadMovie(body)
	if err != nil {
		return err
	}
	first, ok, err := m.Next()
	switch {
	case err != nil:
		return err
	case !ok && media == 0: // a fragmented file: samples are told of as they come
		return s.readFragmented(ctx, a, cmaf.NewReader(io.MultiReader(bytes.NewReader(moov), in)))
	case !ok:
		return weir.Errorf(weir.Invalid, "the MP4 file has no samples")
	}
	return s.readSamples(ctx, w, a, in, m, first, at)
}

// readSamples reads the samples of a file that is not fragmented, in the order of the
// file.
func (s *pullSource) readSamples(ctx context.Context, w *web, a *answer, in *bufio.Reader, m *cmaf.Movie, next cmaf.MovieSample, at int64) error {
	configs, err := s.announce(ctx, m.Tracks())
	if err != nil {
		return err
	}
	from, latest, ok := s.resumes(a), time.Duration(0), true
	for ; ok && err == nil; next, ok, err = m.Next() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		config := configs[next.Track]
		if !config.Config || from > 0 && next.DTS < from || next.Size == 0 {
			continue
		}
		if next.Size > maxMessage {
			return weir.Errorf(weir.Invalid, "the MP4 file has a frame of %d bytes; %d are allowed", next.Size, maxMessage)
		}
		if latest = max(latest, next.DTS); latest-next.DTS > maxApart {
			return weir.Errorf(weir.Invalid, "sound and picture lie more than %d s apart in the MP4 file", int(maxApart.Seconds()))
		}
		if skip := next.Offset - at; skip < 0 || skip > 1<<20 {
			// Elsewhere in the file: a new request is cheaper than reading up to there.
			again, err := w.get(ctx, a.from, next.Offset, 0)
			if err != nil {
				return err
			}
			defer again.Close()
			a.Close()
			a, in = again, bufio.NewReaderSize(again, 64<<10)
		} else if _, err := in.Discard(int(skip)); err != nil {
			return cutOff(err)
		}
		data := make([]byte, next.Size)
		if _, err := io.ReadFull(in, data); err != nil {
			return cutOff(err)
		}
		at = next.Offset + next.Size
		s.reached(a, next.DTS)
		p := codec.Packet{Kind: config.Kind, Codec: config.Codec, Composition: next.PTS - next.DTS, Data: data}
		if err := s.add(ctx, p, next.DTS); err != nil {
			return unreadable(err)
		}
	}
	return err
}

// readFragmented reads a fragmented file to its end, or a live stream of this form.
func (s *pullSource) readFragmented(ctx context.Context, a *answer, r *cmaf.Reader) error {
	r.Limit(maxSegment)
	tracks, err := r.Tracks()
	if err != nil {
		return err
	}
	configs, err := s.announce(ctx, tracks)
	if err != nil {
		return err
	}
	from := s.resumes(a)
	return s.throughWith(a, fragments(r, tracks, configs, func(p codec.Packet, at time.Duration) error {
		if from > 0 && at < from { // it was on air before
			return ctx.Err()
		}
		s.reached(a, at)
		return s.add(ctx, p, at)
	}))
}

// fragments hands the samples of fragmented MP4 to take, by the time when they are
// decoded: a fragment has those of one track only.
func fragments(r *cmaf.Reader, tracks []cmaf.Track, configs []codec.Packet, take func(codec.Packet, time.Duration) error) error {
	m := merger{waiting: make([][]timedPacket, len(tracks)), take: take}
	for i, config := range configs {
		if config.Config {
			m.tracks = append(m.tracks, i)
		}
	}
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return m.hand(true)
		}
		if err != nil {
			return err
		}
		if config := configs[f.Track]; config.Config {
			m.waiting[f.Track] = append(m.waiting[f.Track], packetsIn(tracks[f.Track], config, f)...)
			m.bytes += len(f.Data)
		}
		if err := m.hand(false); err != nil {
			return err
		}
	}
}

// timedPacket is a packet and when it is decoded.
type timedPacket struct {
	codec.Packet
	at time.Duration
}

// packetsIn returns the samples of a fragment.
func packetsIn(track cmaf.Track, config codec.Packet, f cmaf.Fragment) []timedPacket {
	all := make([]timedPacket, 0, len(f.Samples))
	at, data := f.Start, f.Data
	for _, sample := range f.Samples {
		if int64(sample.Size) > int64(len(data)) {
			break
		}
		dts := track.Time(at)
		p := codec.Packet{Kind: config.Kind, Codec: config.Codec, Composition: track.Time(at+int64(sample.Offset)) - dts, Data: data[:sample.Size:sample.Size]}
		data, at = data[sample.Size:], at+int64(sample.Duration)
		if sample.Size > 0 {
			all = append(all, timedPacket{p, dts})
		}
	}
	return all
}

// merger brings what several tracks have into one order.
type merger struct {
	tracks  []int // those that are taken
	waiting [][]timedPacket
	bytes   int // in waiting
	take    func(codec.Packet, time.Duration) error
}

// hand hands on what can come next: as long as one track has nothing, that might be
// earlier, unless the others have waited too long for it. all = nothing more comes.
func (m *merger) hand(all bool) error {
	for {
		next := -1
		missing, span := false, time.Duration(0)
		for _, i := range m.tracks {
			queue := m.waiting[i]
			if len(queue) == 0 {
				missing = true
				continue
			}
			span = max(span, queue[len(queue)-1].at-queue[0].at)
			if next < 0 || queue[0].at < m.waiting[next][0].at {
				next = i
			}
		}
		if next < 0 || missing && !all && span < maxApart && m.bytes < maxSegment {
			return nil
		}
		p := m.waiting[next][0]
		m.waiting[next] = m.waiting[next][1:]
		m.bytes -= len(p.Data)
		if err := m.take(p.Packet, p.at); err != nil {
			return unreadable(err)
		}
	}
}
