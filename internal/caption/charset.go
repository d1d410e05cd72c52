package caption

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"
)

var (
	utf8Mark  = []byte("\xef\xbb\xbf")
	utf16Mark = [][]byte{[]byte("\xff\xfe"), []byte("\xfe\xff")} // little endian, big endian
)

// decode returns a file as text, with \n after each line and without what text can't have. Which
// charset it has is never guessed: a wrong guess would be seen by viewers only.
func decode(file []byte, charset string) (string, error) {
	from, err := charsetOf(file, charset)
	if err != nil {
		return "", err
	}
	if from != nil {
		if file, err = from.NewDecoder().Bytes(file); err != nil || len(file) > 3*MaxFile {
			return "", invalid("the file is not text in the charset that was given")
		}
	}
	file = bytes.TrimPrefix(file, utf8Mark)
	if !utf8.Valid(file) {
		return "", invalid(`the file is neither UTF-8 nor UTF-16 with a byte order mark: save it as UTF-8, or name its charset, such as "windows-1252"`)
	}
	return strings.NewReplacer("\r\n", "\n", "\r", "\n", "\x00", "\ufffd").Replace(string(file)), nil
}

// charsetOf returns the encoding of a file; nil = it should be UTF-8.
func charsetOf(file []byte, charset string) (encoding.Encoding, error) {
	for i, mark := range utf16Mark {
		if bytes.HasPrefix(file, mark) {
			return unicode.UTF16([]unicode.Endianness{unicode.LittleEndian, unicode.BigEndian}[i], unicode.UseBOM), nil
		}
	}
	if charset == "" || bytes.HasPrefix(file, utf8Mark) {
		return nil, nil
	}
	from, err := htmlindex.Get(charset)
	if err != nil {
		return nil, CheckCharset(charset)
	}
	if from == unicode.UTF8 { // its decoder replaces what is not valid
		return nil, nil
	}
	return from, nil
}

// CheckCharset returns an error if [Read] does not know a charset.
func CheckCharset(charset string) error {
	if _, err := htmlindex.Get(charset); charset != "" && err != nil {
		return invalid("charset: %q is not known; write it as web pages do, such as windows-1252, iso-8859-2 or shift_jis", charset)
	}
	return nil
}
