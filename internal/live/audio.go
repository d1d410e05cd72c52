package live

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/weir"
)

// inputTimeout is how long the ffmpeg that transcodes audio may wait for input: an encoder that is
// away sends nothing.
const inputTimeout = 5 * time.Minute

// audioEncoders transcode the audio of a session: Opus to AAC for the packager (aac.go), AAC to
// Opus for viewers over WebRTC (opus.go). The session's lock guards it.
type audioEncoders struct {
	engine *ffmpeg.Engine // nil = nothing is transcoded
	log    *slog.Logger
	taps   *taps                                      // of the session; their lock is the session's
	pack   func(track cmaf.Track, frame sample) error // takes AAC; called with the lock held
	full   func(why error)                            // the disk was full when it did; called with the lock held

	aac      *aacEncoder    // nil = the audio is packed as it comes
	opusOnly bool           // it comes as Opus, and there was no CPU to encode AAC
	opus     *opusEncoder   // nil = no tap needs it
	running  sync.WaitGroup // of AAC
}

// issues returns what is wrong with the audio.
func (a *audioEncoders) issues() []string {
	switch {
	case a.opusOnly:
		return []string{"the audio stays Opus, which Safari and multistream targets do not support: this server is too busy to transcode it to AAC; send AAC, or reconnect the encoder later"}
	case a.aac != nil && a.aac.hasFailed():
		return []string{"the audio is missing: its encoder on this server failed and is being restarted"}
	}
	return nil
}

func isOpus(t cmaf.Track) bool { return t.Kind == cmaf.Audio && strings.EqualFold(t.Codec, "opus") }

// replaceTrack returns tracks with the first one that is of a kind replaced, and its position; -1 =
// there is none.
func replaceTrack(tracks []cmaf.Track, is func(cmaf.Track) bool, by cmaf.Track) ([]cmaf.Track, int) {
	i := slices.IndexFunc(tracks, is)
	if i >= 0 {
		tracks = slices.Clone(tracks)
		tracks[i] = by
	}
	return tracks, i
}

// transcode runs ffmpeg, for which the caller has reserved CPU, and gives the packets of its
// fragmented MP4 to put, until the input ends or something fails.
func (a *audioEncoders) transcode(ctx context.Context, args []string, in io.Reader, put func(at int64, packet []byte) error) error {
	output, encoded := io.Pipe()
	var reading sync.WaitGroup
	var failed error
	reading.Go(func() {
		failed = readPackets(output, put)
		_ = output.CloseWithError(failed)
	})
	err := a.engine.Run(ctx, ffmpeg.Command{
		Args: args, Stdin: in, Outputs: []io.Writer{encoded}, Priority: ffmpeg.Live, Reserved: true, Pixels: 1, Stall: inputTimeout, CPU: unlimitedCPU,
	})
	_ = encoded.CloseWithError(err)
	reading.Wait()
	if err != nil {
		return err
	}
	return failed
}

func readPackets(from io.Reader, put func(at int64, packet []byte) error) error {
	reader := cmaf.NewReader(from)
	for {
		f, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		at, data := f.Start, f.Data
		for _, s := range f.Samples {
			if int64(s.Size) > int64(len(data)) {
				return weir.Errorf(weir.Internal, "the audio encoder wrote a fragment that is shorter than its samples")
			}
			if err := put(at, data[:s.Size:s.Size]); err != nil {
				return err
			}
			at, data = at+int64(s.Duration), data[s.Size:]
		}
	}
}

// backoff is the pause before ffmpeg is started again: twice as long after each failure, and short
// again after a run that lasted a while.
type backoff struct{ pause time.Duration }

const (
	minPause = 500 * time.Millisecond
	maxPause = 30 * time.Second
	ranWell  = time.Minute
)

// next returns the pause after a run that began at a time.
func (b *backoff) next(began time.Time) time.Duration {
	if time.Since(began) > ranWell {
		b.pause = 0
	}
	b.pause = min(max(2*b.pause, minPause), maxPause)
	return b.pause
}
