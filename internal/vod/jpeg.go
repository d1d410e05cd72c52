package vod

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// maxJPEG is far above the size of any image of ours.
const maxJPEG = 32 << 20

// Markers of JPEG.
const (
	jpegStart = 0xd8
	jpegEnd   = 0xd9
	jpegScan  = 0xda
)

var errNotJPEG = errors.New("ffmpeg wrote an invalid JPEG")

// eachJPEG calls do for each of the JPEGs that r has one after the other.
func eachJPEG(r io.Reader, do func(image []byte) error) error {
	in := bufio.NewReader(r)
	for {
		if _, err := in.Peek(1); errors.Is(err, io.EOF) {
			return nil
		}
		j := jpegReader{in: in}
		err := j.read()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			err = do(j.data)
		}
		if err != nil {
			return err
		}
	}
}

type jpegReader struct {
	in   *bufio.Reader
	data []byte
}

func (j *jpegReader) read() error {
	marker, err := j.marker()
	if err == nil && marker != jpegStart {
		err = errNotJPEG
	}
	for err == nil {
		if marker, err = j.marker(); err != nil || marker == jpegEnd {
			return err
		}
		err = j.section()
		if err == nil && marker == jpegScan {
			err = j.scan()
		}
	}
	return err
}

func (j *jpegReader) marker() (byte, error) {
	two, err := j.take(2)
	if err != nil {
		return 0, err
	}
	if two[0] != 0xff {
		return 0, errNotJPEG
	}
	return two[1], nil
}

// section reads a segment that starts with its length.
func (j *jpegReader) section() error {
	two, err := j.take(2)
	if err != nil {
		return err
	}
	length := int(two[0])<<8 | int(two[1])
	if length < 2 {
		return errNotJPEG
	}
	_, err = j.take(length - 2)
	return err
}

// scan reads the entropy-coded data, up to the next marker. In the data, 0xff is followed by 0 or by a restart
// marker.
func (j *jpegReader) scan() error {
	for {
		next, err := j.in.Peek(2)
		if err != nil {
			return err
		}
		if next[0] == 0xff && next[1] != 0 && (next[1] < 0xd0 || next[1] > 0xd7) {
			return nil
		}
		if _, err := j.take(1); err != nil {
			return err
		}
	}
}

func (j *jpegReader) take(n int) ([]byte, error) {
	start := len(j.data)
	if start+n > maxJPEG {
		return nil, fmt.Errorf("an image has more than %d bytes", maxJPEG)
	}
	j.data = append(j.data, make([]byte, n)...)
	_, err := io.ReadFull(j.in, j.data[start:])
	return j.data[start:], err
}
