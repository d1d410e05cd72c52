package live

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/weir"
)

const (
	// PosterEvery is how old an image must be before a new one is made.
	PosterEvery = 5 * time.Second
	// posterTimeout is how long a request waits for the first image.
	posterTimeout = 5 * time.Second
	// posterLimit is how long it may take to make one.
	posterLimit = 30 * time.Second
	// posterAge is how long the last image of a stream is kept.
	posterAge = 30 * 24 * time.Hour

	posterWidth, posterHeight = 1280, 720
	maxPosterBytes            = 4 << 20

	// posterFolder has the last image of each stream. It is beside the folders of sessions.
	posterFolder = "posters"
	posterSuffix = ".jpg"
)

func errNoPoster() error {
	return weir.Errorf(weir.NotFound, "there is no image of the stream yet")
}

// Poster returns a JPEG of the stream, a few seconds old. It is made on request. A request for an
// old image starts a new one and returns the old. An error of kind NotFound means that there was no
// video so far.
func (b *Broadcast) Poster(ctx context.Context) ([]byte, error) {
	return b.session.poster.get(ctx, b.session.renditions.sourceVideo())
}

// LastPoster returns the last image that was made of a stream on this node.
func (h *Hub) LastPoster(streamID string) ([]byte, error) {
	image, err := os.ReadFile(filepath.Join(h.o.Dir, posterFolder, streamID+posterSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoPoster()
	}
	return image, err
}

// sweepPosters removes the images of streams that were deleted, or that were not on air for long.
func (h *Hub) sweepPosters(ctx context.Context) error {
	files, err := os.ReadDir(filepath.Join(h.o.Dir, posterFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, file := range files {
		info, err := file.Info()
		if err != nil {
			continue // it is being replaced
		}
		stream, err := h.o.Store.Stream(ctx, strings.TrimSuffix(file.Name(), posterSuffix))
		if err != nil && weir.KindOf(err) != weir.NotFound {
			return err
		}
		old := time.Since(info.ModTime())
		if old < time.Minute || err == nil && !stream.Deleted && old < posterAge {
			continue
		}
		if err := os.Remove(filepath.Join(h.o.Dir, posterFolder, file.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// poster makes images of a session, one at a time.
type poster struct {
	engine *ffmpeg.Engine // nil = there are no images
	log    *slog.Logger
	file   string // keeps the image for when the session is over

	mu      sync.Mutex
	image   []byte             // nil = there is none yet
	of      framePosition      // the frame that it shows
	tried   time.Time          // when the last one was started
	making  chan struct{}      // closed when the image is there; nil = none is being made
	cancel  context.CancelFunc // of the one that is being made
	working sync.WaitGroup
	closed  bool
}

// close stops the image that is being made.
func (p *poster) close() {
	p.mu.Lock()
	p.closed = true
	if p.making != nil {
		p.cancel()
	}
	p.mu.Unlock()
	p.working.Wait()
}

// get returns an image of a rendition, and starts a new one if this one is old.
func (p *poster) get(ctx context.Context, r *rendition) ([]byte, error) {
	if r == nil || p.engine == nil {
		return nil, errNoPoster()
	}
	key, ok := r.newestKey()
	if !ok {
		return nil, errNoPoster()
	}
	p.mu.Lock()
	if p.making == nil && !p.closed && (p.image == nil || p.of != key.framePosition) && time.Since(p.tried) >= PosterEvery {
		p.start(r, key)
	}
	image, making := p.image, p.making
	p.mu.Unlock()
	if image == nil && making != nil {
		ctx, cancel := context.WithTimeout(ctx, posterTimeout)
		defer cancel()
		select {
		case <-making:
		case <-ctx.Done():
		}
		p.mu.Lock()
		image = p.image
		p.mu.Unlock()
	}
	if image == nil {
		return nil, weir.Errorf(weir.Busy, "the image of the stream is not ready yet; try again in a few seconds")
	}
	return image, nil
}

// start makes an image of a key frame. The caller holds the lock.
func (p *poster) start(r *rendition, key keyFrame) {
	ctx, cancel := context.WithTimeout(context.Background(), posterLimit) // other requests wait for it too
	done := make(chan struct{})
	first := p.image == nil
	p.tried, p.making, p.cancel = time.Now(), done, cancel
	p.working.Go(func() {
		defer close(done)
		defer cancel()
		image, err := p.encode(ctx, r, key, first)
		if err == nil {
			err = p.save(image)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.making = nil
		if image != nil {
			p.image, p.of = image, key.framePosition
		}
		if err != nil && !p.closed {
			p.log.Warn("the poster image could not be made", "err", err)
		}
	})
}

// encode makes a JPEG of a key frame with ffmpeg; first = it is the first of the session.
func (p *poster) encode(ctx context.Context, r *rendition, key keyFrame, first bool) ([]byte, error) {
	data, err := r.frame(key)
	if err != nil {
		return nil, err
	}
	track := key.track
	track.Delay = 0
	_, part := cmaf.EncodePart(1, track, cmaf.Fragment{Samples: []cmaf.Sample{{Duration: track.Timescale, Size: uint32(len(data)), Sync: true}}, Data: data})
	priority := ffmpeg.Batch
	if first {
		priority = ffmpeg.Interactive // a page waits for it
	}
	plan := ffmpeg.Poster{Video: formatOf(track), MaxWidth: posterWidth, MaxHeight: posterHeight}
	var image imageBuffer
	if err := p.engine.Run(ctx, ffmpeg.Command{
		Args: plan.Args(), Stdin: io.MultiReader(bytes.NewReader(cmaf.Init(track)), bytes.NewReader(part)), Outputs: []io.Writer{&image},
		Priority: priority, Brief: true, Pixels: plan.Pixels(), CPU: posterLimit, Stall: posterLimit,
	}); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(image.Bytes(), []byte{0xff, 0xd8}) || !bytes.HasSuffix(image.Bytes(), []byte{0xff, 0xd9}) {
		return nil, errors.New("ffmpeg made no JPEG of a key frame")
	}
	return image.Bytes(), nil
}

func (p *poster) save(image []byte) error {
	if err := os.MkdirAll(filepath.Dir(p.file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(p.file+".tmp", image, 0o600); err != nil {
		return err
	}
	return os.Rename(p.file+".tmp", p.file)
}

// imageBuffer holds an image of limited size.
type imageBuffer struct{ bytes.Buffer }

func (b *imageBuffer) Write(data []byte) (int, error) {
	if b.Len()+len(data) > maxPosterBytes {
		return 0, errors.New("the image is too large")
	}
	return b.Buffer.Write(data)
}

// framePosition is the position of a frame: its segment on disk, part and sample.
type framePosition struct {
	segment      int64
	part, sample int
}

// keyFrame is a frame that can be decoded alone.
type keyFrame struct {
	framePosition
	track  cmaf.Track
	offset int64 // in its part
	size   uint32
}

// newestKey returns the newest key frame.
func (r *rendition) newestKey() (keyFrame, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if key, ok := newestKey(r.open); ok {
		key.segment, key.track = r.first+int64(len(r.segments)), r.track
		return key, true
	}
	for i, segment := range slices.Backward(r.segments) {
		if key, ok := newestKey(segment); ok {
			key.segment, key.track = r.first+int64(i), r.tracks[i]
			return key, true
		}
	}
	return keyFrame{}, false
}

func newestKey(segment cmaf.Segment) (key keyFrame, ok bool) {
	for p, part := range slices.Backward(segment.Parts) {
		for i, sample := range slices.Backward(part.Samples) {
			if sample.Sync && sample.Size > 0 {
				return keyFrame{
					framePosition: framePosition{part: p, sample: i}, offset: int64(part.Head) + cmaf.Bytes(part.Samples[:i]), size: sample.Size,
				}, true
			}
		}
	}
	return keyFrame{}, false
}

// frame reads the bytes of a key frame.
func (r *rendition) frame(key keyFrame) ([]byte, error) {
	body, _, err := r.recorder.Part(key.segment, key.part)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if _, err := body.Seek(key.offset, io.SeekStart); err != nil {
		return nil, err
	}
	data := make([]byte, key.size)
	_, err = io.ReadFull(body, data)
	return data, err
}
