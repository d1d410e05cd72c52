package media

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/internal/blob"
	"weir/internal/c2pa"
	"weir/internal/cmaf"
	"weir/internal/weir"
)

// Signature is what the files of a signed presentation have beside their media: the boxes of package
// c2pa. It is an object beside the presentation, which names it. No byte of the media is stored
// again: the boxes are put into files when these are read.
//
// The hashes are those of files as they are rendered: a change of how WholeSegment,
// cmaf.Progressive or cmaf.Init write a head makes all that was signed before invalid.
type Signature struct {
	weir.Provenance
	Source   *c2pa.Source  `json:"source,omitempty"` // what it was made from; nil = an earlier weir signed a recording
	Manifest []byte        `json:"manifest"`         // the box in all init segments
	Tracks   []SignedTrack `json:"tracks"`
	Files    []SignedFile  `json:"files,omitempty"`
}

// SignedTrack is a run of segments of a track that have the same init segment.
type SignedTrack struct {
	Dir    string    `json:"dir"`              // of the track, below the prefix of the presentation
	Coding int       `json:"coding,omitempty"` // which init segment; see cmaf.TrackIndex.Coded
	First  int       `json:"first,omitempty"`  // segment
	Index  []byte    `json:"index"`            // hash of the index of the track
	Tree   c2pa.Tree `json:"tree"`             // without segments; see whole
	Hashes []byte    `json:"hashes"`           // of the segments, one after the other
}

// SignedFile is the MP4 file of a rendition.
type SignedFile struct {
	weir.Provenance
	Name  string `json:"name"`
	Index []byte `json:"index"` // hash of the indexes of its tracks
	Size  int64  `json:"size"`
	Box   []byte `json:"box"`
}

// Signing is how a presentation is signed.
type Signing struct {
	Signer *c2pa.Signer
	// Source is what it was made from; nil = as an earlier signature says.
	Source *c2pa.Source
	// Content returns what is said about tracks: about all of them, or those of a file.
	Content func(names []string) c2pa.Content
}

// maxSignature is far above the signature of a day of video.
const maxSignature = 64 << 20

func signatureKey(prefix, name string) string { return prefix + "/c2pa/" + name + ".json" }

// LoadSignature reads the signature of a presentation; nil = it is not signed.
func LoadSignature(ctx context.Context, store blob.Store, prefix string, p Presentation) (*Signature, error) {
	if p.Signature == "" {
		return nil, nil
	}
	body, _, err := store.Get(ctx, signatureKey(prefix, p.Signature), 0, -1)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	s := new(Signature)
	if err := json.NewDecoder(io.LimitReader(body, maxSignature)).Decode(s); err != nil {
		return nil, fmt.Errorf("signature of %s: %w", prefix, err)
	}
	return s, nil
}

// Sign signs the files of a presentation whose tracks are complete and sealed: one manifest for all
// tracks, one for each MP4 file. It stores the signature and names it in the presentation, which the
// caller saves. What an earlier signature of the presentation has of a track or a file stays, unless
// that has changed. So viewers can have segments of one and the manifest of the other.
func Sign(ctx context.Context, store blob.Store, prefix string, p *Presentation, how Signing) (*Signature, error) {
	before, err := LoadSignature(ctx, store, prefix, *p)
	if err != nil {
		return nil, err
	}
	if before == nil {
		before = new(Signature)
	}
	s := &Signature{Source: cmp.Or(how.Source, before.Source), Tracks: slices.Clone(before.Tracks), Files: slices.Clone(before.Files)}
	if err := s.sign(ctx, store, prefix, *p, how); err != nil {
		return nil, err
	}
	data, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	name := s.ManifestID[strings.LastIndexByte(s.ManifestID, ':')+1:]
	options := blob.PutOptions{ContentType: "application/json"}
	if err := store.Put(ctx, signatureKey(prefix, name), bytes.NewReader(data), int64(len(data)), options); err != nil {
		return nil, err
	}
	p.Signature = name
	return s, nil
}

func (s *Signature) sign(ctx context.Context, store blob.Store, prefix string, p Presentation, how Signing) error {
	var trees []*c2pa.Tree
	var inits [][]byte
	named := new(c2pa.Tracks)
	open := func(list []Rendition) (tracks []*Track, names []string, err error) {
		for _, r := range list {
			track, err := Open(ctx, store, prefix+"/"+r.Dir)
			if err != nil {
				return nil, nil, err
			}
			if err := s.addTrack(ctx, track, r.Dir); err != nil {
				return nil, nil, err
			}
			tracks, names = append(tracks, track), append(names, r.Name)
			for k := range len(track.index.Changes) + 1 {
				init, err := track.InitAfter(k)
				if err != nil {
					return nil, nil, err
				}
				trees, inits = append(trees, s.track(r.Dir, k).whole()), append(inits, init)
				named.All = append(named.All, c2pa.NamedTrack{Name: r.Name, Kind: string(track.index.Track.Kind)})
			}
		}
		return tracks, names, nil
	}
	video, renditions, err := open(p.Renditions)
	if err != nil {
		return err
	}
	audio, languages, err := open(p.Audio)
	if err != nil {
		return err
	}
	content := how.Content(slices.Concat(renditions, languages))
	content.Source, content.Tracks = s.Source, named
	if s.Manifest, s.Provenance, err = how.Signer.Fragments(ctx, content, trees, inits); err != nil {
		return err
	}
	for i, name := range renditions {
		if err := s.addFile(ctx, append([]string{name}, languages...), append([]*Track{video[i]}, audio...), how); err != nil {
			return err
		}
	}
	for i, name := range languages {
		if len(video) > 0 {
			break
		}
		if err := s.addFile(ctx, []string{name}, audio[i:i+1], how); err != nil {
			return err
		}
	}
	return nil
}

// addTrack hashes the segments of a track, unless that was done before.
func (s *Signature) addTrack(ctx context.Context, t *Track, dir string) error {
	index, err := hashIndexes(t)
	if err != nil {
		return err
	}
	for k := range len(t.index.Changes) + 1 {
		number := len(s.Tracks) + 1
		old := s.track(dir, k)
		if old != nil {
			if bytes.Equal(old.Index, index) {
				continue
			}
			number = old.Tree.Track
		}
		first, end := codedSegments(t.index, k)
		init, err := t.InitAfter(k)
		if err != nil {
			return err
		}
		tree, err := c2pa.NewTree(number, init, end-first)
		if err != nil {
			return err
		}
		signed := SignedTrack{Dir: dir, Coding: k, First: first, Index: index, Tree: *tree, Hashes: make([]byte, 0, (end-first)*sha256.Size)}
		for n := first; n < end; n++ {
			group := min(tree.Group(), end-first-(n-first)/tree.Group()*tree.Group())
			file, err := t.WholeSegment(n, signed.blank(n, group))
			if err != nil {
				return err
			}
			sum, err := hashFile(ctx, file)
			if err != nil {
				return err
			}
			signed.Hashes = append(signed.Hashes, sum...)
		}
		if old != nil {
			*old = signed
		} else {
			s.Tracks = append(s.Tracks, signed)
		}
	}
	return nil
}

// hashIndexes returns a hash of the indexes of tracks. It changes if a track is encoded again.
func hashIndexes(tracks ...*Track) ([]byte, error) {
	sum := sha256.New()
	for _, t := range tracks {
		data, err := writeIndex(indexHead{Track: t.index.Track, Changes: t.index.Changes, Folders: t.index.Folders}, t.index.Segments)
		if err != nil {
			return nil, err
		}
		sum.Write(data)
	}
	return sum.Sum(nil), nil
}

// codedSegments returns which segments of a track have init segment k.
func codedSegments(t cmaf.TrackIndex, k int) (first, end int) {
	end = len(t.Segments)
	if k > 0 {
		first = t.Changes[k-1].First
	}
	if k < len(t.Changes) {
		end = t.Changes[k].First
	}
	return first, end
}

// addFile signs a rendition with all audio as an MP4 file, unless that was done before or it can't be
// one. The rendition is the first of the tracks.
func (s *Signature) addFile(ctx context.Context, names []string, tracks []*Track, how Signing) error {
	name := names[0]
	index, err := hashIndexes(tracks...)
	if err != nil {
		return err
	}
	if old := s.file(name); old != nil && bytes.Equal(old.Index, index) {
		return nil
	}
	s.Files = slices.DeleteFunc(s.Files, func(f SignedFile) bool { return f.Name == name })
	content := how.Content(names)
	content.Source = s.Source
	content.About = maps.Clone(content.About)
	if content.About == nil {
		content.About = map[string]string{}
	}
	content.About["profile"] = name
	manifest, err := how.Signer.File(content)
	if err != nil {
		return err
	}
	file, err := Progressive(tracks, nil, manifest.Blank())
	if weir.KindOf(err) == weir.Invalid {
		return nil // viewers get no such file either
	}
	if err != nil {
		return err
	}
	sum, err := hashFile(ctx, file)
	if err != nil {
		return err
	}
	signed := SignedFile{Name: name, Index: index, Size: file.Size()}
	if signed.Box, signed.Provenance, err = manifest.Sign(ctx, sum); err != nil {
		return err
	}
	s.Files = append(s.Files, signed)
	return nil
}

func hashFile(ctx context.Context, f *File) ([]byte, error) {
	h := c2pa.NewHash()
	r := f.Reader(ctx)
	defer r.Close()
	if _, err := io.Copy(h, r); err != nil {
		return nil, err
	}
	return h.Sum()
}

func (s *Signature) track(dir string, coding int) *SignedTrack {
	for i := range s.Tracks {
		if t := &s.Tracks[i]; t.Dir == dir && t.Coding == coding {
			return t
		}
	}
	return nil
}

func (s *Signature) file(name string) *SignedFile {
	for i := range s.Files {
		if s.Files[i].Name == name {
			return &s.Files[i]
		}
	}
	return nil
}

// Init returns the signed init segment of a track after k changes of its coding.
func (s *Signature) Init(t *Track, k int) ([]byte, error) {
	init, err := t.InitAfter(k)
	if err != nil {
		return nil, err
	}
	return c2pa.Insert(init, s.Manifest)
}

// Segment returns segment n of the track in a folder, with its box.
func (s *Signature) Segment(t *Track, dir string, n int) (*File, error) {
	if err := t.check(n); err != nil {
		return nil, err
	}
	signed := s.track(dir, t.index.InitOf(n))
	if signed == nil || n < signed.First || n-signed.First >= signed.count() {
		return nil, errUnsigned()
	}
	return t.WholeSegment(n, signed.box(n))
}

// Verified returns the manifest for what is made from segments of a track, from first up to end. They
// are read and compared with it.
func (s *Signature) Verified(ctx context.Context, t *Track, dir string, first, end int, now time.Time) (*c2pa.SourceManifest, error) {
	coding := t.index.InitOf(first)
	init, err := s.Init(t, coding)
	if err != nil {
		return nil, err
	}
	v := c2pa.VerifyInit(init, c2pa.Options{Now: now})
	for n := first; n < end && t.index.InitOf(n) == coding; n++ {
		file, err := s.Segment(t, dir, n)
		if err != nil {
			return nil, err
		}
		r := file.Reader(ctx)
		data, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			return nil, err
		}
		if _, _, err := v.Segment(fmt.Sprint("segment ", n), bytes.NewReader(data), int64(len(data))); err != nil {
			return nil, err
		}
	}
	return v.Source(), nil
}

// MP4 returns a rendition as a signed MP4 file. The tracks are that of the rendition and those of
// audio.
func (s *Signature) MP4(name string, tracks []*Track) (*File, error) {
	signed := s.file(name)
	if signed == nil {
		return nil, errUnsigned()
	}
	return Progressive(tracks, nil, signed.Box)
}

// MP4Manifest returns the id of the manifest in the MP4 file of a rendition.
func (s *Signature) MP4Manifest(name string) string {
	if f := s.file(name); f != nil {
		return f.ManifestID
	}
	return ""
}

// Memory returns about how many bytes of memory the signature takes.
func (s *Signature) Memory() (bytes int64) {
	if s == nil {
		return 0
	}
	bytes = int64(len(s.Manifest))
	for _, t := range s.Tracks {
		bytes += int64(len(t.Hashes))
	}
	for _, f := range s.Files {
		bytes += int64(len(f.Box))
	}
	return bytes
}

// MP4Size returns the size of the signed MP4 file of a rendition; ok is false if there is none.
func (s *Signature) MP4Size(name string) (size int64, ok bool) {
	if f := s.file(name); f != nil {
		return f.Size, true
	}
	return 0, false
}

func errUnsigned() error {
	return weir.Errorf(weir.NotFound, "there is no signed file of this rendition; use index.m3u8")
}

func (s *SignedTrack) count() int { return len(s.Hashes) / sha256.Size }

// group returns the hashes of the segments of a group, which is a run that is added to the tree at
// once.
func (s *SignedTrack) group(from int) [][]byte {
	end := min(from+s.Tree.Group(), s.count())
	return slices.Collect(slices.Chunk(s.Hashes[from*sha256.Size:end*sha256.Size], sha256.Size))
}

// at returns the tree as it is before the group of segment n, and the position of n in that group.
func (s *SignedTrack) at(n int) (tree c2pa.Tree, i int) {
	tree, i = s.Tree, n-s.First
	tree.Count = i / tree.Group() * tree.Group()
	return tree, i - tree.Count
}

// blank returns the box of segment n before its hash is known; group is how many segments its group
// has.
func (s *SignedTrack) blank(n, group int) []byte {
	tree, i := s.at(n)
	return tree.Blank(i, group)
}

// box returns the box of segment n.
func (s *SignedTrack) box(n int) []byte {
	tree, i := s.at(n)
	return tree.Add(s.group(tree.Count))[i]
}

// whole returns the tree with all segments.
func (s *SignedTrack) whole() *c2pa.Tree {
	tree := s.Tree
	for from := 0; from < s.count(); from += tree.Group() {
		tree.Add(s.group(from))
	}
	return &tree
}
