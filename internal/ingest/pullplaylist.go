package ingest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"weir/internal/hls"
	"weir/internal/weir"
)

// maxPlaylist is the maximum size of a playlist.
const maxPlaylist = 8 << 20

// playlist is a media playlist that can be pulled.
type playlist struct {
	target   time.Duration // no segment is longer
	segments []hlsSegment
	ended    bool
}

// hlsSegment is a segment, and where it is in the stream.
type hlsSegment struct {
	hls.Segment
	number int64
	part   int64 // how many discontinuities there were up to it
}

func badPlaylist(format string, args ...any) error {
	return weir.Errorf(weir.Invalid, "the HLS playlist "+format, args...)
}

// readPlaylist reads a playlist and refuses what can't be pulled. If it is a master playlist, it
// returns that instead.
func readPlaylist(data []byte) (*hls.Master, playlist, error) {
	master, media, err := hls.Parse(data)
	switch {
	case errors.Is(err, hls.ErrVariables):
		return nil, playlist{}, badPlaylist("%v, which can't be pulled", err)
	case err != nil:
		return nil, playlist{}, badPlaylist("%v", err)
	case master != nil:
		return master, playlist{}, nil
	case media.IFramesOnly:
		return nil, playlist{}, badPlaylist("has only key frames")
	case media.Sequence < 0 || media.DiscontinuitySequence < 0:
		return nil, playlist{}, badPlaylist("has a number that can't be read")
	case media.Target < 0 || slices.ContainsFunc(media.Segments, untimed):
		return nil, playlist{}, badPlaylist("has a duration that can't be read")
	case !slices.ContainsFunc(media.Keys, unusable):
		return nil, segmentsOf(media), nil
	}
	return nil, playlist{}, badPlaylist("is encrypted in a way that can't be pulled; AES-128 can be")
}

func untimed(s hls.Segment) bool { return s.Duration < 0 }

// unusable reports whether segments with such a key can't be decrypted.
func unusable(k hls.Key) bool {
	return k.Method != "AES-128" || k.URI == "" || k.Format != "" && k.Format != "identity"
}

func segmentsOf(media *hls.Media) playlist {
	list := playlist{target: media.Target, ended: media.Ended}
	number, part := media.Sequence+int64(media.Skipped), media.DiscontinuitySequence
	for _, s := range media.Segments {
		if s.Discontinuity {
			part++
		}
		if !s.Open {
			list.segments = append(list.segments, hlsSegment{s, number, part})
		}
		number++
	}
	return list
}

// bestVariant returns the variant with the most bits whose video weir can take, and its audio, if that has a
// playlist of its own.
func bestVariant(m *hls.Master) (hls.Variant, *hls.Audio) {
	known := func(v hls.Variant) bool {
		return len(v.Codecs) == 0 || slices.ContainsFunc(v.Codecs, func(codec string) bool {
			for _, name := range []string{"avc1", "avc3", "hvc1", "hev1", "av01"} {
				if strings.Contains(codec, name) {
					return true
				}
			}
			return false
		})
	}
	best := m.Variants[0]
	for _, v := range m.Variants[1:] {
		if known(v) && !known(best) || known(v) == known(best) && v.Bandwidth > best.Bandwidth {
			best = v
		}
	}
	var audio *hls.Audio
	for i, a := range m.Audio {
		plays := best.Audio != "" && a.Group == best.Audio && a.URI != ""
		if plays && (audio == nil || a.Default && !audio.Default) {
			audio = &m.Audio[i]
		}
	}
	return best, audio
}
