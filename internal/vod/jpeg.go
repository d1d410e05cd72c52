package vod

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// largestJPEG is far above what any picture of ours weighs.
const largestJPEG = 32 << 20

// jpegReader takes JPEGs apart that come one after the other.
type jpegReader struct {
	in *bufio.Reader
}

func newJPEGReader(r io.Reader) *jpegReader { return &jpegReader{bufio.NewReader(r)} }

// Markers of JPEG.
const (
	jpegStart = 0xd8
	jpegEnd   = 0xd9
	jpegScan  = 0xda
)

var errNotJPEG = errors.New("this is not a JPEG")

// next returns the next picture, and io.EOF after the last.
func (j *jpegReader) next() ([]byte, error) {
	if _, err := j.in.Peek(1); err != nil {
		return nil, err
	}
	picture, err := j.picture()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return picture, err
}

func (j *jpegReader) picture() ([]byte, error) {
	var data []byte
	marker, err := j.marker(&data)
	if err == nil && marker != jpegStart {
		err = errNotJPEG
	}
	for err == nil {
		marker, err = j.marker(&data)
		switch {
		case err != nil:
		case marker == jpegEnd:
			return data, nil
		default:
			err = j.section(&data)
			if err == nil && marker == jpegScan {
				err = j.scan(&data)
			}
		}
	}
	return nil, err
}

// marker reads two bytes that say what follows.
func (j *jpegReader) marker(data *[]byte) (byte, error) {
	two, err := j.take(data, 2)
	if err != nil {
		return 0, err
	}
	if two[0] != 0xff {
		return 0, errNotJPEG
	}
	return two[1], nil
}

// section reads a section that starts with its length.
func (j *jpegReader) section(data *[]byte) error {
	two, err := j.take(data, 2)
	if err != nil {
		return err
	}
	length := int(two[0])<<8 | int(two[1])
	if length < 2 {
		return errNotJPEG
	}
	_, err = j.take(data, length-2)
	return err
}

// scan reads the pixels, up to the next marker. There are none in them: a byte 0xff is
// followed by 0 or by a restart.
func (j *jpegReader) scan(data *[]byte) error {
	for {
		next, err := j.in.Peek(2)
		if err != nil {
			return err
		}
		if next[0] == 0xff && next[1] != 0 && (next[1] < 0xd0 || next[1] > 0xd7) {
			return nil
		}
		if _, err := j.take(data, 1); err != nil {
			return err
		}
	}
}

func (j *jpegReader) take(data *[]byte, n int) ([]byte, error) {
	if len(*data)+n > largestJPEG {
		return nil, fmt.Errorf("a picture has more than %d bytes", largestJPEG)
	}
	start := len(*data)
	*data = append(*data, make([]byte, n)...)
	_, err := io.ReadFull(j.in, (*data)[start:])
	return (*data)[start:], err
}
