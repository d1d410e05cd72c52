package live

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
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
	// posterEvery is how old a picture must be before another one is made.
	posterEvery = 5 * time.Second
	// posterTimeout is how long whoever asks first waits for a picture.
	posterTimeout = 5 * time.Second
	// posterLimit is how long making one may take, with the wait for a core.
	posterLimit = 30 * time.Second
	// posterAge is how long the last picture of a stream is kept.
	posterAge = 30 * 24 * time.Hour

	posterWidth, posterHeight = 1280, 720
	largestPoster             = 4 << 20

	// posterFolder has the last pictures, beside the folders of sessions.
	posterFolder = "posters"
	posterSuffix = ".jpg"
)

// errNoPoster is what is said of a stream that nobody has seen anything of.
func errNoPoster() error {
	return weir.Errorf(weir.NotFound, "there is no picture of the stream yet")
}

// Poster returns a JPEG of what is on air, a few seconds old. It is made when somebody asks
// for it, and so is the next one: who asks gets the last one meanwhile. An error of kind
// NotFound means that there was nothing to see so far.
func (b *Broadcast) Poster(ctx context.Context) ([]byte, error) { return b.session.picture(ctx) }

// LastPoster returns the last picture that was made of a stream on this node.
func (h *Hub) LastPoster(streamID string) ([]byte, error) {
	picture, err := os.ReadFile(filepath.Join(h.o.Dir, posterFolder, streamID+posterSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoPoster()
	}
	return picture, err
}

// sweepPosters removes the pictures of streams that were deleted, or that were not on air
// for long.
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

// poster is a picture of a session. There is never more than one in the making; who asks
// meanwhile gets the one before it.
type poster struct {
	mu      sync.Mutex
	picture []byte     // nil = there is none yet
	of      framePlace // that it is of
	tried   time.Time  // when the last one was begun
	making  chan struct{}
	cancel  context.CancelFunc // of what is in the making
	working sync.WaitGroup
	closed  bool
}

// close ends what is in the making.
func (p *poster) close() {
	p.mu.Lock()
	p.closed = true
	if p.making != nil {
		p.cancel()
	}
	p.mu.Unlock()
	p.working.Wait()
}

// picture returns a picture of the session, and sees to it that there is a newer one a
// moment later if this one is old.
func (s *session) picture(ctx context.Context) ([]byte, error) {
	s.looking.RLock()
	r := s.video
	s.looking.RUnlock()
	if r == nil || s.engine == nil {
		return nil, errNoPoster()
	}
	key, ok := r.newestKey()
	if !ok {
		return nil, errNoPoster()
	}
	p := &s.poster
	p.mu.Lock()
	if p.making == nil && !p.closed && (p.picture == nil || p.of != key.framePlace) && time.Since(p.tried) >= posterEvery {
		s.beginPoster(r, key)
	}
	picture, making := p.picture, p.making
	p.mu.Unlock()
	if picture != nil {
		return picture, nil
	}
	if making != nil {
		ctx, cancel := context.WithTimeout(ctx, posterTimeout)
		defer cancel()
		select {
		case <-making:
		case <-ctx.Done():
		}
		p.mu.Lock()
		picture = p.picture
		p.mu.Unlock()
	}
	if picture == nil {
		return nil, weir.Errorf(weir.Busy, "the picture of the stream is not made yet; ask again in a few seconds")
	}
	return picture, nil
}

// beginPoster makes a picture of a key frame. The caller has the lock of the poster.
func (s *session) beginPoster(r *rendition, key keyFrame) {
	p := &s.poster
	ctx, cancel := context.WithTimeout(context.Background(), posterLimit) // others wait for it too
	done := make(chan struct{})
	p.tried, p.making, p.cancel = time.Now(), done, cancel
	p.working.Go(func() {
		defer close(done)
		defer cancel()
		picture, err := s.makePoster(ctx, r, key)
		if err == nil {
			err = s.savePoster(picture)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.making = nil
		if picture != nil {
			p.picture, p.of = picture, key.framePlace
		}
		if err != nil && !p.closed {
			s.log.Warn("no new picture of the stream", "err", err)
		}
	})
}

// makePoster lets ffmpeg make a picture of a key frame.
func (s *session) makePoster(ctx context.Context, r *rendition, key keyFrame) ([]byte, error) {
	data, err := r.frame(key)
	if err != nil {
		return nil, err
	}
	track := key.track
	track.Delay = 0
	_, part := cmaf.EncodePart(1, track, cmaf.Fragment{Samples: []cmaf.Sample{{Duration: track.Timescale, Size: uint32(len(data)), Sync: true}}, Data: data})
	plan := ffmpeg.Poster{Video: pictureOf(track), MaxWidth: posterWidth, MaxHeight: posterHeight}
	var picture pictureBuffer
	if err := s.engine.Run(ctx, ffmpeg.Command{
		Args: plan.Args(), Stdin: io.MultiReader(bytes.NewReader(cmaf.Init(track)), bytes.NewReader(part)), Outputs: []io.Writer{&picture},
		Priority: ffmpeg.Batch, Pixels: plan.Pixels(), CPU: posterLimit, Stall: posterLimit,
	}); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(picture.Bytes(), []byte{0xff, 0xd8}) || !bytes.HasSuffix(picture.Bytes(), []byte{0xff, 0xd9}) {
		return nil, errors.New("ffmpeg made no picture of a key frame")
	}
	return picture.Bytes(), nil
}

// savePoster keeps a picture for when the session is over.
func (s *session) savePoster(picture []byte) error {
	folder := filepath.Join(filepath.Dir(s.dir), posterFolder)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	path := filepath.Join(folder, s.stream.ID+posterSuffix)
	if err := os.WriteFile(path+".tmp", picture, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// pictureBuffer holds a picture, and none that can't be one.
type pictureBuffer struct{ bytes.Buffer }

func (b *pictureBuffer) Write(data []byte) (int, error) {
	if b.Len()+len(data) > largestPoster {
		return 0, errors.New("the picture is too large")
	}
	return b.Buffer.Write(data)
}

// framePlace is where a frame is: in which segment on disk, part and sample.
type framePlace struct {
	segment      int64
	part, sample int
}

// keyFrame is a frame that can be decoded alone.
type keyFrame struct {
	framePlace
	track  cmaf.Track
	offset int64 // in its part
	size   uint32
}

// newestKey returns the newest key frame that there is.
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
					framePlace: framePlace{part: p, sample: i}, offset: int64(part.Head) + cmaf.Bytes(part.Samples[:i]), size: sample.Size,
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
