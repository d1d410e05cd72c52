package blob

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/internal/hls"
	"weir/internal/weir"
)

// playlist is an importable HLS playlist: the best variant of a master playlist, or the files of a
// media playlist.
type playlist struct {
	best   *hls.Variant
	files  []playlistFile // in the order of the file, the init section first
	length time.Duration
}

type playlistFile struct {
	uri string
	span
}

// notSupported returns the error for a feature of HLS that weir can't import.
func notSupported(what string) error {
	return weir.Errorf(weir.Invalid, "the HLS playlist %s, which can't be imported", what)
}

// parsePlaylist parses a playlist whose media can be concatenated to one file.
func parsePlaylist(data []byte) (playlist, error) {
	master, media, err := hls.Parse(data)
	bad, isRange := errors.AsType[*hls.RangeError](err)
	switch {
	case isRange:
		return playlist{}, weir.Errorf(weir.Invalid, "the HLS playlist %v: %q", err, cut(bad.Text, 60))
	case errors.Is(err, hls.ErrHeader):
		return playlist{}, weir.Errorf(weir.Invalid, "the file has the name of an HLS playlist, but does not begin with #EXTM3U")
	case errors.Is(err, hls.ErrVariables):
		return playlist{}, notSupported(err.Error())
	case errors.Is(err, hls.ErrTooLong):
		return playlist{}, notSupported(fmt.Sprintf("has more than %d segments", hls.MaxEntries))
	case err != nil:
		return playlist{}, weir.Errorf(weir.Invalid, "the HLS playlist %v", err)
	case master != nil:
		return withAudio(master)
	}
	return allFiles(media)
}

func refuseKeys(keys []hls.Key) error {
	for _, k := range keys {
		if k.Method != "NONE" {
			return notSupported("is encrypted (" + cut(k.Method, 40) + ")")
		}
	}
	return nil
}

// withAudio returns the variant with the highest bandwidth that has audio in its own files.
func withAudio(master *hls.Master) (playlist, error) {
	if err := refuseKeys(master.SessionKeys); err != nil {
		return playlist{}, err
	}
	separate := map[string]bool{} // audio groups with files of their own
	for _, a := range master.Audio {
		separate[a.Group] = separate[a.Group] || a.URI != ""
	}
	whole := slices.DeleteFunc(master.Variants, func(v hls.Variant) bool { return separate[v.Audio] })
	if len(whole) == 0 {
		return playlist{}, notSupported("has audio and video in separate files")
	}
	best := slices.MaxFunc(whole, func(a, b hls.Variant) int { return cmp.Compare(a.Bandwidth, b.Bandwidth) })
	return playlist{best: &best}, nil
}

func allFiles(media *hls.Media) (list playlist, err error) {
	if media.IFramesOnly {
		return list, notSupported("has only key frames")
	}
	if err := refuseKeys(media.Keys); err != nil {
		return list, err
	}
	var init *hls.File
	for i, s := range media.Segments {
		switch {
		case s.Open:
			continue
		case s.Gap:
			return playlist{}, notSupported("has gaps")
		case s.Discontinuity && i > 0:
			return playlist{}, notSupported("has a discontinuity")
		case i == 0 && s.Map != nil:
			init = s.Map
			list.add(*init)
		case s.Map != init && (s.Map == nil || init == nil || *s.Map != *init):
			return playlist{}, notSupported("changes its codec or its size in the middle")
		}
		list.add(s.File)
		list.length += max(s.Duration, 0)
	}
	switch {
	case len(list.files) == 0:
		return playlist{}, weir.Errorf(weir.Invalid, "the HLS playlist has no segments")
	case !media.Ended:
		return playlist{}, weir.Errorf(weir.Invalid, "the HLS playlist is not complete: it has no #EXT-X-ENDLIST; import it when the stream is over")
	}
	return list, nil
}

// add appends a file, or extends the last one if the file continues it.
func (l *playlist) add(f hls.File) {
	file := playlistFile{f.URI, span{0, -1}}
	if f.Length > 0 {
		file.span = span{f.Offset, f.Offset + f.Length}
	}
	if n := len(l.files); n > 0 && file.from > 0 {
		if last := &l.files[n-1]; last.uri == file.uri && last.to == file.from {
			last.to = file.to
			return
		}
	}
	l.files = append(l.files, file)
}
