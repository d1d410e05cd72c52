package publish

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"weir/internal/c2pa"
	"weir/internal/hls"
	"weir/internal/weir"
)

// VerifyOptions say how a playlist is verified.
type VerifyOptions struct {
	c2pa.Options

	// Fetch writes what is at a URL into a file.
	Fetch func(ctx context.Context, url string, into *os.File) error

	Dir string // for temporary files
}

// Verified is the result for a track of a playlist, or for a file.
type Verified struct {
	Name     string `json:"name"`               // path or URL
	Segments int    `json:"segments,omitempty"` // that were verified
	Note     string `json:"note,omitempty"`     // what was not verified
	c2pa.Report

	playlist string // that names it
	tracks   []int  // its numbers in the manifest; nil = it is a file
}

const notCovered = "tracks not covered: the manifest does not name the tracks that belong together, so a missing one is not noticed"

// Bounds of a playlist.
const (
	maxPlaylist      = 16 << 20
	maxVerifiedInit  = 64 << 20
	maxVerifiedFiles = 256
)

// VerifyPlaylist verifies everything that an HLS playlist names: all segments of all renditions, in
// their order and completely, or the files that they are in. It also verifies that the playlist has
// all tracks that were signed together, if the manifest names these.
func VerifyPlaylist(ctx context.Context, address string, o VerifyOptions) ([]Verified, error) {
	v := &verifier{VerifyOptions: o, done: map[string]bool{}}
	err := v.playlist(ctx, address, true)
	if err == nil && len(v.results) == 0 {
		err = weir.Errorf(weir.Invalid, "%s: has no media", address)
	}
	return v.results, err
}

type verifier struct {
	VerifyOptions
	results []Verified
	done    map[string]bool // playlists and files
}

func (v *verifier) playlist(ctx context.Context, address string, top bool) error {
	text, err := v.read(ctx, address, maxPlaylist)
	if err != nil {
		return err
	}
	master, list, err := hls.Parse(text)
	if err != nil {
		return weir.Errorf(weir.Invalid, "%s: is not an HLS playlist: %s", address, err)
	}
	if list != nil {
		if err := v.media(ctx, address, list); err != nil || !top {
			return err
		}
		v.compare(address, false, nil)
		return nil
	}
	if !top {
		return weir.Errorf(weir.Invalid, "%s: is not a media playlist", address)
	}
	var uris []string
	for _, variant := range master.Variants {
		uris = append(uris, variant.URI)
	}
	for _, audio := range master.Audio {
		uris = append(uris, audio.URI)
	}
	for _, uri := range uris {
		inner, err := relative(address, uri)
		if err != nil {
			return err
		}
		if uri == "" || v.done[inner] {
			continue
		}
		if v.done[inner] = true; len(v.done) > maxVerifiedFiles {
			return weir.Errorf(weir.Invalid, "%s: refers to too many playlists", address)
		}
		if err := v.playlist(ctx, inner, false); err != nil {
			return err
		}
	}
	v.compare(address, true, v.muted(address, master))
	return nil
}

func relative(base, uri string) (string, error) {
	from, err := url.Parse(base)
	if err == nil {
		from, err = from.Parse(uri)
	}
	// What a server says can't make this machine read its own files.
	if err != nil || from.Scheme == "file" && !strings.HasPrefix(base, "file:") {
		return "", weir.Errorf(weir.Invalid, "%s: refers to %q, which is not a valid URL", base, uri)
	}
	return from.String(), nil
}

// media verifies what a media playlist names.
func (v *verifier) media(ctx context.Context, address string, list *hls.Media) error {
	var t *verifiedTrack
	for _, s := range list.Segments {
		switch {
		case s.Map == nil && s.Gap:
			continue
		case s.Map == nil:
			problem := c2pa.Problem{Code: "general.error", Explanation: "its segments are MPEG-TS, which C2PA does not support"}
			v.results = append(v.results, Verified{Name: address, Report: c2pa.Report{State: c2pa.Unsigned, Problems: []c2pa.Problem{problem}}})
			return nil
		case s.Map.Length > 0 || s.Length > 0: // ranges of a file that is signed as a whole
			if err := v.file(ctx, address, s.URI); err != nil {
				return err
			}
			continue
		}
		if t == nil || t.init != s.Map.URI {
			v.end(t)
			var err error
			if t, err = v.begin(ctx, address, s.Map.URI); err != nil {
				return err
			}
		}
		if s.Gap { // it has a place, but need not be there
			t.segments++
			continue
		}
		if err := v.segment(ctx, address, s.URI, t); err != nil {
			return err
		}
	}
	v.end(t)
	return nil
}

// verifiedTrack is an init segment and the segments after it.
type verifiedTrack struct {
	*c2pa.Fragments
	playlist, init string
	unsigned       bool // so the segments need not be read
	segments       int  // that were read
	good           int  // of them
}

func (v *verifier) begin(ctx context.Context, address, uri string) (*verifiedTrack, error) {
	init, err := relative(address, uri)
	if err != nil {
		return nil, err
	}
	data, err := v.read(ctx, init, maxVerifiedInit)
	if err != nil {
		return nil, err
	}
	t := &verifiedTrack{Fragments: c2pa.VerifyInit(data, v.Options), playlist: address, init: uri}
	t.unsigned = t.Report().State == c2pa.Unsigned
	return t, nil
}

// end adds the result of a track. All its segments must have been there, also if the playlist does
// not say that it has ended: what is signed has.
func (v *verifier) end(t *verifiedTrack) {
	if t == nil {
		return
	}
	if count := t.Count(); !t.unsigned && count > 0 && t.segments != count {
		t.Fail(t.playlist, fmt.Sprintf("the playlist has %d segments, but %d were signed", t.segments, count))
	}
	v.results = append(v.results, Verified{Name: t.playlist, Segments: t.good, Report: t.Report(), playlist: t.playlist, tracks: t.Tracks()})
}

func (v *verifier) segment(ctx context.Context, address, uri string, t *verifiedTrack) error {
	name, err := relative(address, uri)
	if err != nil || t.unsigned {
		return err
	}
	file, size, err := v.fetch(ctx, name)
	if err != nil {
		return err
	}
	defer file.Close()
	at, ok, err := t.Segment(name, file, size)
	if ok && at != t.segments {
		t.Fail(name, fmt.Sprintf("the playlist has segment %d at the position of segment %d", at, t.segments))
	} else if ok {
		t.good++
	}
	t.segments++
	return err
}

// file verifies a file, once.
func (v *verifier) file(ctx context.Context, address, uri string) error {
	name, err := relative(address, uri)
	if err != nil || v.done[name] {
		return err
	}
	v.done[name] = true
	file, size, err := v.fetch(ctx, name)
	if err != nil {
		return err
	}
	defer file.Close()
	report, err := c2pa.Verify(file, size, v.Options)
	v.results = append(v.results, Verified{Name: name, Report: report, playlist: address})
	return err
}

// fetch returns a temporary file with what is at a URL.
func (v *verifier) fetch(ctx context.Context, address string) (*os.File, int64, error) {
	file, err := os.CreateTemp(v.Dir, "verify-*")
	if err != nil {
		return nil, 0, err
	}
	err = os.Remove(file.Name())
	if err == nil {
		err = v.Fetch(ctx, address, file)
	}
	size := int64(0)
	if err == nil {
		size, err = file.Seek(0, io.SeekEnd)
	}
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	return file, size, nil
}

// read returns what is at a URL, if it is not larger than most bytes.
func (v *verifier) read(ctx context.Context, address string, most int64) ([]byte, error) {
	file, size, err := v.fetch(ctx, address)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if size > most {
		return nil, weir.Errorf(weir.TooLarge, "%s: has %d bytes; at most %d are allowed", address, size, most)
	}
	var data bytes.Buffer
	_, err = io.Copy(&data, io.NewSectionReader(file, 0, size))
	return data.Bytes(), err
}
