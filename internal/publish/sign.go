package publish

import (
	"context"
	"io"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/c2pa"
	"weir/internal/media"
	"weir/internal/weir"
)

// Signer signs what weir makes.
type Signer struct {
	C2PA    *c2pa.Signer
	Version string // of weir
}

// Origin is the source of what is signed, without its address: that may have credentials.
type Origin struct {
	Name      string // of the file
	SHA256    string // of the file, in hexadecimal; "" = not known
	CreatorID string // who asked for it; "" = not known
	Manifest  *SourceManifest
}

// SourceManifest is the manifest of a source that is signed itself.
type SourceManifest = c2pa.SourceManifest

// Signing signs Outputs. HLS has CMAF segments then, because MPEG-TS can't be signed.
type Signing struct {
	signer  *c2pa.Signer
	content c2pa.Content
}

// Transcode returns what signs the renditions of a source.
func (s *Signer) Transcode(from Origin, now time.Time) *Signing {
	return &Signing{signer: s.C2PA, content: c2pa.Content{
		Generator: "weir", Version: s.Version, When: now, Steps: []c2pa.Step{c2pa.Transcoded},
		Source: &c2pa.Source{Title: from.Name, Format: mediaType(from.Name), Manifest: from.Manifest},
		About:  map[string]string{"sourceSha256": from.SHA256, "creatorId": from.CreatorID},
	}}
}

// mediaType returns the MIME type of a file by its name; "" = not known.
func mediaType(name string) string {
	switch strings.ToLower(path.Ext(name)) {
	case ".mp4", ".m4v":
		return typeMP4
	case ".mov":
		return "video/quicktime"
	case ".mkv":
		return "video/x-matroska"
	case ".webm":
		return "video/webm"
	case ".ts":
		return typeTS
	}
	return ""
}

// SourceName returns the name of a source by its path or URL.
func SourceName(source string) string {
	if u, err := url.Parse(source); err == nil && strings.Contains(source, "://") {
		source = u.Path
	}
	return path.Base(filepath.ToSlash(source))
}

// ReadManifest returns the manifest of a source file; nil = it has none. One that can't be read
// is left out: that is no reason to refuse the source.
func ReadManifest(name string) (*SourceManifest, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return c2pa.ReadSource(file, info.Size(), c2pa.Options{Now: time.Now()})
}

// of returns what the manifest of a rendition says; "" = that of all renditions.
func (s *Signing) of(rendition string) c2pa.Content {
	c := s.content
	c.About = maps.Clone(c.About)
	c.About["profile"] = rendition
	if c.Title = rendition; rendition == "" {
		c.Title = c.Source.Title
	}
	return c
}

// signer returns what signs the file of a rendition; nil = files are not signed. beside are the
// tracks in other files that belong to it; nil = it has all.
func (r *run) signer(rendition string, beside *c2pa.Tracks) (*c2pa.File, error) {
	if r.Sign == nil {
		return nil, nil
	}
	content := r.Sign.of(rendition)
	content.Tracks = beside
	return r.Sign.signer.File(content)
}

// named returns a track as manifests name it.
func (t Track) named() c2pa.NamedTrack {
	return c2pa.NamedTrack{Name: t.Name, Kind: string(t.Index.Track.Kind)}
}

// sendSigned sends a complete file, which is hashed while it is sent, so one part after the other.
// Its first part, which has the manifest, is the last. Only a file that is put with one request is read
// twice.
func (r *run) sendSigned(ctx context.Context, f growingFile, file *c2pa.File, o outgoing) error {
	if o.parts == nil {
		return r.inSlot(ctx, func() error {
			hash := c2pa.NewHash()
			if err := hashUpTo(ctx, hash, o, o.size); err != nil {
				return err
			}
			signed, err := r.putManifest(ctx, f, file, hash, &o)
			if err == nil {
				err = r.send(ctx, o)
			}
			if err == nil {
				r.change(func() { f.state.Done, f.state.Size, f.state.Signed = true, o.size, &signed })
			}
			return err
		})
	}
	upload, err := r.upload(ctx, o)
	if err != nil {
		return err
	}
	hash := c2pa.NewHash()
	if f.state.Hash != nil {
		// The state may be saved for other files at any time, so it has its own copy.
		if hash, err = f.state.Hash.Clone(); err != nil {
			return err
		}
	}
	size := o.parts.PartSize
	if err := r.inSlot(ctx, func() error { return hashUpTo(ctx, hash, o, min(size, o.size)) }); err != nil {
		return err
	}
	count := o.partCount()
	for n := 2; n <= count; n++ {
		if _, done := o.parts.Parts[n]; done {
			continue
		}
		hashed := o
		hashed.open = func(ctx context.Context) io.ReadSeekCloser { return &hashing{ReadSeekCloser: o.open(ctx), hash: hash} }
		if err := r.sendPart(ctx, upload, hashed, n); err != nil {
			return err
		}
		if err := hashUpTo(ctx, hash, o, min(int64(n)*size, o.size)); err != nil {
			return err
		}
		// The hash can't be computed again from what was sent.
		noted, err := hash.Clone()
		if err != nil {
			return err
		}
		r.change(func() { f.state.Hash = noted })
		if err := r.save(ctx); err != nil {
			return err
		}
	}
	if err := hashUpTo(ctx, hash, o, o.size); err != nil {
		return err
	}
	signed, err := r.putManifest(ctx, f, file, hash, &o)
	if err != nil {
		return err
	}
	if err := r.sendPart(ctx, upload, o, 1); err != nil {
		return err
	}
	r.change(func() { f.state.Signed = &signed })
	return r.complete(ctx, upload, o)
}

// putManifest signs a file and puts the manifest into it.
func (r *run) putManifest(ctx context.Context, f growingFile, file *c2pa.File, hash *c2pa.Hash, o *outgoing) (signed weir.Provenance, err error) {
	sum, err := hash.Sum()
	if err != nil {
		return signed, err
	}
	box, signed, err := file.Sign(ctx, sum)
	if err != nil {
		return signed, err
	}
	layout, err := f.layout(0, box)
	if err != nil {
		return signed, err
	}
	final, err := r.file(layout, f.tracks)
	if err == nil {
		o.open = final.Reader
	}
	return signed, err
}

// hashUpTo adds the bytes of an object to its hash that are missing up to an offset.
func hashUpTo(ctx context.Context, hash *c2pa.Hash, o outgoing, end int64) error {
	if hash.At() >= end {
		return nil
	}
	body := o.open(ctx)
	defer body.Close()
	if _, err := body.Seek(hash.At(), io.SeekStart); err != nil {
		return err
	}
	_, err := io.CopyN(hash, body, end-hash.At())
	return err
}

// hashing reads an object and adds to its hash what follows the bytes that it has. Who sends an
// object may read some of it several times.
type hashing struct {
	io.ReadSeekCloser
	hash *c2pa.Hash
	at   int64
}

func (h *hashing) Seek(offset int64, whence int) (at int64, err error) {
	at, err = h.ReadSeekCloser.Seek(offset, whence)
	h.at = at
	return at, err
}

func (h *hashing) Read(p []byte) (int, error) {
	n, err := h.ReadSeekCloser.Read(p)
	if h.at <= h.hash.At() {
		if _, err := h.hash.WriteAt(p[:n], h.at); err != nil {
			return n, err
		}
	}
	h.at += int64(n)
	return n, err
}

// signedBatch is how many segments of a track are signed and sent before their progress is noted.
const signedBatch = 4 * uploads

// expectedSegments estimates how many segments a track will have.
func (t Track) expectedSegments() int {
	count := len(t.Index.Segments)
	if so := t.Index.Duration(); !t.Complete && so > 0 {
		count = max(count, int(float64(count)*t.Length.Seconds()/so.Seconds()))
	}
	return count
}

// putSigned puts the segments of a variant that are ready, each with its hashes. number is that of
// the track in the manifest.
func (o hlsOutput) putSigned(ctx context.Context, r *run, v variant, number int, state *segmentState) error {
	track := r.track(*v.main())
	if state.Tree == nil {
		tree, err := c2pa.NewTree(number, track.Init(), v.main().expectedSegments())
		if err != nil {
			return err
		}
		r.change(func() { state.Tree = tree })
	}
	group := state.Tree.Group()
	ready := v.segments()
	if !v.main().Complete {
		ready -= ready % group // the size of a box depends on the number of segments in its group
	}
	for state.Segments < ready {
		end := min(ready, state.Segments+max(group, signedBatch))
		if err := o.putBatch(ctx, r, v, track, state, end); err != nil {
			return err
		}
	}
	return nil
}

// putBatch puts the next segments of a variant, which are whole groups of its tree.
func (o hlsOutput) putBatch(ctx context.Context, r *run, v variant, track *media.Track, state *segmentState, end int) error {
	tree, first := *state.Tree, state.Segments
	tree.Row = append([]byte(nil), tree.Row...)
	group := tree.Group()
	leaves, boxes := make([][]byte, end-first), make([][]byte, 0, end-first)
	bytes := int64(0)
	each := func(do func(ctx context.Context, i int) error) error {
		running, runCtx := errgroup.WithContext(ctx)
		for i := range leaves {
			if err := r.slots.Acquire(runCtx, 1); err != nil {
				break
			}
			running.Go(func() error {
				defer r.slots.Release(1)
				return do(runCtx, i)
			})
		}
		if err := running.Wait(); err != nil {
			return err
		}
		return ctx.Err()
	}
	send := func(ctx context.Context, n int, file *media.File, open func(context.Context) io.ReadSeekCloser) error {
		r.change(func() { bytes += file.Size() })
		return r.send(ctx, outgoing{key: o.key(v.name, o.segment(n)), contentType: typeMP4, size: file.Size(), open: open})
	}
	err := each(func(ctx context.Context, i int) error {
		at := tree
		at.Count = first + i - i%group
		file, err := track.WholeSegment(first+i, at.Blank(i%group, min(group, end-at.Count)))
		if err != nil {
			return err
		}
		hash := c2pa.NewHash()
		if group == 1 { // its box is final
			err = send(ctx, first+i, file, func(ctx context.Context) io.ReadSeekCloser {
				return &hashing{ReadSeekCloser: file.Reader(ctx), hash: hash}
			})
		}
		if err == nil {
			err = hashUpTo(ctx, hash, outgoing{open: file.Reader}, file.Size())
		}
		if err == nil {
			leaves[i], err = hash.Sum()
		}
		return err
	})
	if err != nil {
		return err
	}
	for i := 0; i < len(leaves); i += group {
		boxes = append(boxes, tree.Add(leaves[i:min(i+group, len(leaves))])...)
	}
	if group > 1 {
		err = each(func(ctx context.Context, i int) error {
			file, err := track.WholeSegment(first+i, boxes[i])
			if err != nil {
				return err
			}
			return send(ctx, first+i, file, file.Reader)
		})
	}
	if err == nil {
		r.change(func() { state.Tree, state.Segments, state.Bytes = &tree, end, state.Bytes+bytes })
	}
	return err
}

// putInits signs all variants together and puts their init segments, which all have the manifest.
func (o hlsOutput) putInits(ctx context.Context, r *run) error {
	variants := o.variants(r.video, r.audio)
	items := make([]*itemState, len(variants))
	trees, inits := make([]*c2pa.Tree, len(variants)), make([][]byte, len(variants))
	content := r.Sign.of("")
	content.Tracks = new(c2pa.Tracks)
	for i, v := range variants {
		content.Tracks.All = append(content.Tracks.All, v.main().named())
		items[i] = r.state.items[o.name()][v.name]
		trees[i], inits[i] = items[i].Tree, r.track(*v.main()).Init()
	}
	box, signed, err := r.Sign.signer.Fragments(ctx, content, trees, inits)
	if err != nil {
		return err
	}
	for i, v := range variants {
		init, err := c2pa.Insert(inits[i], box)
		if err != nil {
			return err
		}
		if err := r.sendBytes(ctx, o.key(v.name, hlsInit), typeMP4, init); err != nil {
			return err
		}
		r.change(func() {
			if !items[i].Init {
				items[i].Init, items[i].Bytes = true, items[i].Bytes+int64(len(init))
			}
			items[i].Signed = &signed
		})
	}
	return nil
}
