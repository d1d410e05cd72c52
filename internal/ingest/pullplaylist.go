package ingest

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"weir/internal/hls"
	"weir/internal/weir"
)

// maxPlaylist is the maximum size of a playlist.
const maxPlaylist = 8 << 20

func badPlaylist(format string, args ...any) error {
	return weir.Errorf(weir.Invalid, "the HLS playlist "+format, args...)
}

// readPlaylist parses a master or media playlist and refuses one that can't be pulled.
func readPlaylist(data []byte) (*hls.Master, *hls.Media, error) {
	master, list, err := hls.Parse(data)
	switch {
	case errors.Is(err, hls.ErrVariables):
		err = badPlaylist("%v, which are not supported", err)
	case err != nil:
		err = badPlaylist("%v", err)
	case master != nil:
	case list.IFramesOnly:
		err = badPlaylist("has only key frames")
	case list.Sequence < 0 || list.DiscontinuitySequence < 0:
		err = badPlaylist("has an invalid sequence number")
	case list.Target < 0 || slices.ContainsFunc(list.Segments, untimed):
		err = badPlaylist("has an invalid duration")
	case slices.ContainsFunc(list.Keys, unusable):
		err = badPlaylist("is encrypted in an unsupported way; use AES-128")
	default: // segments are pulled when they are complete
		list.Segments = slices.DeleteFunc(list.Segments, func(s hls.Segment) bool { return s.Open })
	}
	return master, list, err
}

func untimed(s hls.Segment) bool { return s.Duration < 0 }

// unusable reports whether segments with such a key can't be decrypted.
func unusable(k hls.Key) bool {
	return k.Method != "AES-128" || k.URI == "" || k.Format != "" && k.Format != "identity"
}

// bestVariant returns the variant with the highest bandwidth whose video codec is supported, and
// its audio, if that has a playlist of its own.
func bestVariant(m *hls.Master) (hls.Variant, *hls.Audio) {
	rank := func(v hls.Variant) (known int) {
		for _, codec := range []string{"avc1", "avc3", "hvc1", "hev1", "av01"} {
			if len(v.Codecs) == 0 || strings.Contains(strings.Join(v.Codecs, ","), codec) {
				known = 1
			}
		}
		return known
	}
	best := slices.MaxFunc(m.Variants, func(a, b hls.Variant) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Bandwidth, b.Bandwidth))
	})
	var audio *hls.Audio
	for i, a := range m.Audio {
		plays := best.Audio != "" && a.Group == best.Audio && a.URI != ""
		if plays && (audio == nil || a.Default && !audio.Default) {
			audio = &m.Audio[i]
		}
	}
	return best, audio
}
