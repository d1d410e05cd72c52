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
	// maxMoov is the maximum size of a moov box: that of a film of many hours.
	maxMoov = 32 << 20
	// maxApart is the maximum distance of audio and video of the same time in a file.
	maxApart = 10 * time.Second
)

// configure gives the feed the configurations of the tracks that are used, the first supported one
// of each kind. It returns them by the positions of the tracks; the other tracks have none.
// announce gets the kinds of tracks. audioElsewhere says that the audio is in another playlist.
func (s *pullSource) configure(
	ctx context.Context, tracks []cmaf.Track, announce func(video, audio bool), audioElsewhere bool,
) ([]codec.Packet, error) {
	configs := make([]codec.Packet, len(tracks))
	have := map[cmaf.Kind]bool{}
	unsupported := "" // why the audio can't be used
	for i, t := range tracks {
		c := t.Config()
		supported := codec.NewDecoder(c.Codec) != nil && len(c.Record) > 0 && (c.Codec != codec.Opus || c.Channels <= 2)
		if !supported || have[t.Kind] {
			s.log.Info("a track of the source is left out", "kind", t.Kind, "codec", t.Codec)
			if t.Kind == cmaf.Audio {
				unsupported = cmp.Or(t.Codec, "its codec") + " is not supported; use AAC, or Opus with one or two channels"
			}
			continue
		}
		have[t.Kind], configs[i] = true, codec.Packet{Kind: t.Kind, Codec: c.Codec, Config: true, Data: c.Record}
	}
	if len(have) == 0 {
		return nil, weir.Errorf(weir.Invalid, "the file has no supported track; use H.264, HEVC or AV1 with AAC or Opus")
	}
	announce(have[cmaf.Video], have[cmaf.Audio])
	if unsupported != "" && !have[cmaf.Audio] && !audioElsewhere {
		s.ignoreAudio(unsupported)
	}
	for _, config := range configs {
		if config.Config {
			if err := s.addPacketNow(ctx, config, 0); err != nil {
				return nil, unreadable(err)
			}
		}
	}
	return configs, nil
}

// ignoreAudio tells the feed why there is no audio.
func (s *pullSource) ignoreAudio(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feed.ignoreAudio(why)
}

// readMP4 reads a file that starts with in; a is the response that in reads.
func (s *pullSource) readMP4(ctx context.Context, w *fetcher, a *httpResponse, in *bufio.Reader) error {
	var at int64
	var media int64 // where the samples begin; 0 = not seen yet
	for {
		head, err := in.Peek(16)
		if len(head) < 8 {
			if err == nil || errors.Is(err, io.EOF) {
				err = weir.Errorf(weir.Invalid, "the MP4 file has no moov box, which describes its tracks")
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
				return weir.Errorf(weir.Invalid, "the MP4 file has no moov box, which describes its tracks")
			}
			// The moov box is behind the media and is fetched first.
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

// readMovie reads the samples of a moov box. at is the position of in in the file, media that of
// the samples, if they were seen.
func (s *pullSource) readMovie(ctx context.Context, w *fetcher, a *httpResponse, in *bufio.Reader, moov []byte, at, media int64) error {
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
	case !ok && media == 0: // a fragmented file
		return s.readFragmented(ctx, a, cmaf.NewReader(io.MultiReader(bytes.NewReader(moov), in)))
	case !ok:
		return weir.Errorf(weir.Invalid, "the MP4 file has no samples")
	}
	return s.readSamples(ctx, w, a, in, m, first, at)
}

// readSamples reads the samples of a file that is not fragmented, in the order of the file.
func (s *pullSource) readSamples(ctx context.Context, w *fetcher, a *httpResponse, in *bufio.Reader, m *cmaf.Movie, next cmaf.MovieSample, at int64) error {
	configs, err := s.configure(ctx, m.Tracks(), s.announce, false)
	if err != nil {
		return err
	}
	from, latest, ok := s.resumeAt(a), time.Duration(0), true
	for ; ok && err == nil; next, ok, err = m.Next() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		config := configs[next.Track]
		if !config.Config || from > 0 && next.DTS < from || next.Size == 0 {
			continue
		}
		if next.Size > codec.MaxFrame {
			return weir.Errorf(weir.Invalid, "the MP4 file has a frame of %d bytes; the maximum is %d", next.Size, codec.MaxFrame)
		}
		if latest = max(latest, next.DTS); latest-next.DTS > maxApart {
			return weir.Errorf(weir.Invalid, "audio and video are more than %d s apart in the MP4 file", int(maxApart.Seconds()))
		}
		if skip := next.Offset - at; skip < 0 || skip > 1<<20 {
			// A new request is cheaper than reading up to there.
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
		if err := s.addPacket(ctx, p, next.DTS); err != nil {
			return unreadable(err)
		}
	}
	return err
}

// readFragmented reads a fragmented file, or a live stream in this format.
func (s *pullSource) readFragmented(ctx context.Context, a *httpResponse, r *cmaf.Reader) error {
	r.Limit(maxSegment)
	tracks, err := r.Tracks()
	if err != nil {
		return err
	}
	configs, err := s.configure(ctx, tracks, s.announce, false)
	if err != nil {
		return err
	}
	from := s.resumeAt(a)
	return s.ended(a, fragments(r, tracks, configs, func(p codec.Packet, at time.Duration) error {
		if from > 0 && at < from { // it was on air before
			return ctx.Err()
		}
		s.reached(a, at)
		return s.addPacket(ctx, p, at)
	}))
}

// fragments gives the samples of fragmented MP4 to take, in the order of their decode times: a
// fragment has samples of one track only.
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
			return m.flush(true)
		}
		if err != nil {
			return err
		}
		if config := configs[f.Track]; config.Config {
			m.waiting[f.Track] = append(m.waiting[f.Track], packetsIn(tracks[f.Track], config, f)...)
			m.bytes += len(f.Data)
		}
		if err := m.flush(false); err != nil {
			return err
		}
	}
}

// timedPacket is a packet with its decode time.
type timedPacket struct {
	codec.Packet
	at time.Duration
}

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

// merger merges the packets of several tracks by their decode times.
type merger struct {
	tracks  []int // that are used
	waiting [][]timedPacket
	bytes   int // in waiting
	take    func(codec.Packet, time.Duration) error
}

// flush passes packets on while every track has one. A track without a packet might have an earlier
// one, so the others wait for it, up to a limit. all = no more packets come.
func (m *merger) flush(all bool) error {
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
