package codec

import (
	"bytes"
	"testing"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/opus"
)

func TestOpusHead(t *testing.T) {
	if want := []byte("OpusHead\x01\x02\x38\x01\x80\xbb\x00\x00\x00\x00\x00"); !bytes.Equal(OpusHead(2), want) {
		t.Errorf("head of stereo % x, want % x", OpusHead(2), want)
	}
	for channels := 1; channels <= 8; channels++ {
		head := OpusHead(channels)
		var c opus.IDHeader
		if err := c.Unmarshal(head); err != nil || int(c.ChannelCount) != channels {
			t.Errorf("another reader has %d channels of %d, %v", c.ChannelCount, channels, err)
		}
		if got, err := opusChannels(head); err != nil || got != channels {
			t.Errorf("%d channels of %d, %v", got, channels, err)
		}
		if table := c.ChannelMappingTable; channels > 2 && (c.ChannelMappingFamily != 1 || len(table) != 2+channels || int(table[0]+table[1]) != channels) {
			t.Errorf("%d channels: family %d, table %v", channels, c.ChannelMappingFamily, table)
		}
		for n := range head[:19] {
			if _, err := opusChannels(head[:n]); err == nil {
				t.Errorf("%d bytes of a head are taken", n)
			}
		}
	}
	for _, channels := range []int{-1, 0, 9, 258} {
		if head := OpusHead(channels); head != nil {
			t.Errorf("head of %d channels % x", channels, head)
		}
	}
}
