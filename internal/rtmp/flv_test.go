package rtmp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/codec"
)

// flvFile is a file with metadata, an empty tag, and packets whose times wrap around.
func flvFile() []byte {
	data := join("FLV", 1, 5, 0, 0, 0, 9, 0, 0, 0, 0)
	tag := func(kind byte, milliseconds uint32, body []byte) {
		head := appendUint24([]byte{kind}, uint32(len(body)))
		head = append(appendUint24(head, milliseconds&0xFFFFFF), byte(milliseconds>>24), 0, 0, 0)
		data = append(append(append(data, head...), body...), 0, 0, 0, byte(11+len(body)))
	}
	tag(messageData, 0, appendAMF(nil, "onMetaData", ecmaArray{}))
	tag(messageVideo, 0, nil)
	tag(messageVideo, 1<<32-20, join(0x17, 0, 0, 0, 0, "avcC"))
	tag(messageVideo, 1<<32-20, join(0x17, 1, 0, 0, 40, "frame"))
	tag(messageAudio, 20, join(0xAF, 1, "audio"))
	return data
}

func TestFLV(t *testing.T) {
	file := flvFile()
	read := func(data []byte) (all []taken, err error) {
		err = ReadFLV(bufio.NewReader(bytes.NewReader(data)), func(p codec.Packet, at time.Duration) error {
			all = append(all, taken{p, at})
			return nil
		})
		return all, err
	}
	const last = (1<<32 - 20) * time.Millisecond
	want := []taken{
		{codec.Packet{Kind: codec.Video, Codec: codec.H264, Config: true, Data: []byte("avcC")}, last},
		{codec.Packet{Kind: codec.Video, Codec: codec.H264, Composition: 40 * time.Millisecond, Data: []byte("frame")}, last},
		{codec.Packet{Kind: codec.Audio, Codec: codec.AAC, Data: []byte("audio")}, last + 40*time.Millisecond},
	}
	for _, data := range [][]byte{file, file[:len(file)-4], file[:len(file)-2]} { // the last size may be missing
		got, err := read(data)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("error %v; packets (-want +got):\n%s", err, diff)
		}
	}
	for _, length := range []int{0, 5, 10, 20, len(file) - 5} {
		if _, err := read(file[:length]); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the first %d bytes: %v", length, err)
		}
	}
	for want, data := range map[string][]byte{
		"head":                  join("FLX", make([]byte, 20)),
		"tag of 16777215 bytes": join(file[:13], 9, 255, 255, 255, make([]byte, 20)),
		"ends too early":        join(file[:13], 9, 0, 0, 1, make([]byte, 7), 0x17, 0, 0, 0, 0),
		"the header of the FLV": join("FLV", 1, 5, 0, 0, 0, 8, make([]byte, 20)),
	} {
		if _, err := read(data); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	broken := errors.New("broken")
	if err := ReadFLV(bufio.NewReader(bytes.NewReader(file)), func(codec.Packet, time.Duration) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error %v, want that of the caller", err)
	}
}
