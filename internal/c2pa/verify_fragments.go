package c2pa

import (
	"bytes"
	"crypto/subtle"
	"fmt"
	"io"
	"strconv"
)

// Fragments validates a track in segments: an init segment and any of its segments.
type Fragments struct {
	validation *validation
	none       Report         // if there is no manifest
	tracks     []bindingTrack // those of this init segment
	track      int            // the track of the first segment; 0 = none yet
	seen       map[int]bool   // locations
}

// VerifyInit validates an init segment.
func VerifyInit(init []byte, o Options) *Fragments {
	f := &Fragments{seen: map[int]bool{}}
	found, err := findManifest(bytes.NewReader(init), int64(len(init)))
	if err != nil || found.store == nil {
		f.none = found.report()
		return f
	}
	v, err := validate(found.store, o)
	if err != nil {
		f.none = invalid(err)
		return f
	}
	f.validation = v
	if found.problem != "" {
		v.addResult(codeHashMismatch, "init", found.problem)
		return f
	}
	if len(v.bindings) != 1 {
		return f
	}
	h, problem := v.bindings[0].hasher()
	if problem != "" {
		v.addResult(codeHashMalformed, labelHash, problem)
		return f
	}
	if len(v.bindings[0].Merkle) == 0 {
		v.addResult(codeHashMismatch, labelHash, "the manifest is that of a whole file; verify the file alone")
		return f
	}
	local, err := trackID(init)
	if err == nil {
		_, err = h.Write(init)
	}
	sum, sumErr := h.Sum()
	if err != nil || sumErr != nil {
		v.addResult(codeHashMismatch, "init", "the init segment can't be read")
		return f
	}
	for _, t := range v.bindings[0].Merkle {
		if t.Local == local && subtle.ConstantTimeCompare(t.InitHash, sum) == 1 {
			f.tracks = append(f.tracks, t)
		}
	}
	if len(f.tracks) == 0 {
		v.addResult(codeHashMismatch, "init", "the init segment was changed after it was signed")
	}
	return f
}

// Segment validates a segment of the track, and returns its position. name is for the report.
func (f *Fragments) Segment(name string, segment io.ReaderAt, size int64) (position int, ok bool, err error) {
	if f.validation == nil || len(f.tracks) == 0 {
		return 0, false, nil // the report says why
	}
	fail := func(format string, args ...any) (int, bool, error) {
		f.validation.addResult(codeHashMismatch, name, fmt.Sprintf(format, args...))
		return 0, false, nil
	}
	at, problem, err := findFragment(segment, size)
	if err != nil {
		return 0, false, err
	}
	if problem != "" {
		return fail("%s", problem)
	}
	h, _ := f.validation.bindings[0].hasher()
	if _, err := io.Copy(h, io.NewSectionReader(segment, 0, size)); err != nil && unreadable(err) != nil {
		return 0, false, err
	}
	sum, err := h.Sum()
	if err != nil {
		return fail("the segment can't be read")
	}
	for _, t := range f.tracks {
		if t.Track != at.Track || t.Local != at.Local {
			continue
		}
		switch {
		case !t.has(at, sum):
			return fail("the segment was changed after it was signed")
		case f.track != 0 && f.track != t.Track:
			return fail("the segment is of another track")
		case f.seen[at.Location]:
			return fail("segment %d is there twice", at.Location)
		}
		f.track, f.seen[at.Location] = t.Track, true
		return at.Location, true, nil
	}
	return fail("the segment is of another track, or of another file")
}

// Fail adds a problem that the caller found, such as a segment at the wrong place of a playlist.
func (f *Fragments) Fail(where, explanation string) {
	if f.validation != nil {
		f.validation.addResult(codeHashMismatch, where, explanation)
	}
}

// Count returns how many segments the track has, as it was signed; 0 = not known.
func (f *Fragments) Count() int {
	for _, t := range f.tracks {
		if t.Track == f.track || len(f.tracks) == 1 {
			return t.Count
		}
	}
	return 0
}

// Report returns the result for the init segment and the segments so far.
func (f *Fragments) Report() Report {
	if f.validation == nil {
		return f.none
	}
	return f.validation.report()
}

// maxFragments bounds the segments of a track.
const maxFragments = 1 << 24

// has reports whether the row has the hash of a segment.
func (t bindingTrack) has(at fragment, sum []byte) bool {
	if at.Location < 0 || at.Location >= t.Count || t.Count > maxFragments {
		return false
	}
	i, hashes := at.Location, at.Hashes
	for width := t.Count; width > len(t.Hashes); width = (width + 1) / 2 {
		if width == 1 {
			return false
		}
		if other := i ^ 1; other < width {
			if len(hashes) == 0 {
				return false
			}
			left, right := sum, hashes[0]
			if other < i {
				left, right = hashes[0], sum
			}
			h := newSum(t.Alg)
			if h == nil {
				return false
			}
			h.Write(left)
			h.Write(right)
			sum, hashes = h.Sum(nil), hashes[1:]
		}
		i /= 2
	}
	// The number of hashes must be that of a row: else the loop went past it.
	width := t.Count
	for width > len(t.Hashes) {
		width = (width + 1) / 2
	}
	return width == len(t.Hashes) && len(hashes) == 0 && subtle.ConstantTimeCompare(sum, t.Hashes[i]) == 1
}

// maxFragmentBox bounds the box of a segment.
const maxFragmentBox = 64 << 10

// findFragment returns the box of a segment. There must be one, and one fragment after it.
func findFragment(segment io.ReaderAt, size int64) (at fragment, problem string, err error) {
	var boxes, moofs, mdats int
	err = walk(segment, size, func(b rootBox, head []byte) error {
		switch {
		case b.name == "moof":
			moofs++
		case b.name == "mdat":
			mdats++
		case exclusions()[0].has(b.name, head):
			if b.size > maxFragmentBox || moofs > 0 {
				return notBMFF("the box of the segment is too large, or after the moof box")
			}
			body := make([]byte, b.size-b.head)
			if _, err := segment.ReadAt(body, b.at+b.head); err != nil && err != io.EOF {
				return err
			}
			purpose, data, ok := readUUIDBox(body)
			if !ok || purpose != purposeMerkle {
				return notBMFF("the C2PA box of the segment is not one for segments")
			}
			boxes++
			return decode(data, &at)
		}
		return nil
	})
	if err != nil {
		return at, err.Error(), unreadable(err)
	}
	switch {
	case boxes == 0:
		return at, "the segment is not signed", nil
	case boxes > 1 || moofs != 1 || mdats != 1:
		return at, "the segment has " + strconv.Itoa(boxes) + " boxes of C2PA and " + strconv.Itoa(moofs) + " fragments; each must be one", nil
	}
	return at, "", nil
}
