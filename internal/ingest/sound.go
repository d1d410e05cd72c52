package ingest

import (
	"bytes"
	"fmt"
	"time"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/mpeg4audio"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/opus"

	"weir/internal/cmaf"
)

// aacDecoder is the decoder of AAC.
type aacDecoder struct {
	config    []byte // AudioSpecificConfig
	count     int64  // samples in a frame
	rate      int64  // samples a second
	isChanged bool
}

func (d *aacDecoder) configure(config []byte) error {
	if len(config) == 0 || bytes.Equal(config, d.config) {
		return nil // encoders that don't know it yet send none
	}
	var c mpeg4audio.AudioSpecificConfig
	if err := c.Unmarshal(config); err != nil {
		return fmt.Errorf("what is sent ahead of the sound: %w", err)
	}
	if c.SampleRate <= 0 {
		return fmt.Errorf("sound with %d samples a second", c.SampleRate)
	}
	d.config, d.count, d.rate, d.isChanged = bytes.Clone(config), 1024, int64(c.SampleRate), true
	if c.FrameLengthFlag {
		d.count = 960
	}
	return nil
}

func (d *aacDecoder) sample(frame []byte) (unit, error) {
	return unit{data: frame, sync: true, count: d.count, rate: d.rate}, nil
}

func (d *aacDecoder) changed() bool {
	was := d.isChanged
	d.isChanged = false
	return was
}

func (d *aacDecoder) track() (t cmaf.Track, ok bool, err error) {
	if d.config == nil {
		return t, false, nil
	}
	t, err = cmaf.AACTrack(d.config)
	return t, err == nil, err
}

// opusDecoder is the decoder of Opus.
type opusDecoder struct {
	channels  int
	isChanged bool
}

func (d *opusDecoder) configure(config []byte) error {
	var c opus.IDHeader
	if err := c.Unmarshal(config); err != nil {
		return fmt.Errorf("what is sent ahead of the sound: %w", err)
	}
	if n := int(c.ChannelCount); n != d.channels {
		d.channels, d.isChanged = n, true
	}
	return nil
}

func (d *opusDecoder) sample(frame []byte) (unit, error) {
	return unit{data: frame, sync: true, count: opus.PacketDuration2(frame), rate: 48000}, nil
}

func (d *opusDecoder) changed() bool {
	was := d.isChanged
	d.isChanged = false
	return was
}

func (d *opusDecoder) track() (t cmaf.Track, ok bool, err error) {
	if d.channels == 0 {
		return t, false, nil
	}
	t, err = cmaf.OpusTrack(d.channels)
	return t, err == nil, err
}

// maxRounded is how far a time may be from where the audio before it ends and still
// be a rounding.
const maxRounded = 3 * time.Millisecond

// grid puts back what times in whole milliseconds lost. Frames of audio have an exact
// length, and without gaps each begins where the one before it ends.
type grid struct {
	start time.Duration
	count int64 // samples since then
	rate  int64
}

// at returns when a unit begins that was sent with a time.
func (g *grid) at(sent time.Duration, u unit) time.Duration {
	if u.rate == 0 {
		return sent
	}
	if g.rate == u.rate {
		if at := g.start + duration(g.count, g.rate); (sent - at).Abs() < maxRounded {
			g.count += u.count
			return at
		}
	}
	*g = grid{sent, u.count, u.rate}
	return sent
}
