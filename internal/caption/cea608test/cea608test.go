// Package cea608test writes closed captions (CEA-608) for tests: a [Script] makes the pairs of
// bytes of one channel, of which a frame has one, and [SEI] puts them into H.264.
package cea608test

import (
	"math/bits"
	"strings"
)

// Pair is two bytes with their parity bits, and the field that has them.
type Pair struct {
	Field int // 1 or 2
	Data  [2]byte
}

// Script is what an encoder sends for a channel.
type Script struct {
	channel int
	pairs   []Pair
	half    byte // a character that waits for another one; 0 = none
}

// New returns the script of a channel, 1 to 4 for CC1 to CC4.
func New(channel int) *Script { return &Script{channel: channel} }

// Pairs returns what was written, in order.
func (s *Script) Pairs() []Pair {
	s.finish()
	return s.pairs
}

// Commands, the second byte of codes that begin with 0x14.
const (
	RCL = 0x20 // resume caption loading: pop-on
	BS  = 0x21 // backspace
	DER = 0x24 // delete to end of row
	RU2 = 0x25 // roll-up with two rows; RU2+1 and RU2+2 have more
	FON = 0x28 // flash on
	RDC = 0x29 // resume direct captioning: paint-on
	TR  = 0x2a // text restart
	EDM = 0x2c // erase displayed memory
	CR  = 0x2d // carriage return
	ENM = 0x2e // erase non-displayed memory
	EOC = 0x2f // end of caption: show what was loaded
)

// Command writes commands.
func (s *Script) Command(commands ...byte) *Script {
	for _, command := range commands {
		s.Code(0x14, command)
	}
	return s
}

// Code writes a control code, twice as encoders do. The first byte is that of CC1.
func (s *Script) Code(a, b byte) *Script {
	s.finish()
	const second = 0x08
	if s.channel%2 == 0 {
		a |= second
	}
	if command := a&^second == 0x14 && b < 0x30; command && s.channel > 2 {
		a |= 1 // commands of field 2 differ
	}
	s.Raw(a, b)
	s.Raw(a, b)
	return s
}

// Raw writes a pair as it is, but with parity bits.
func (s *Script) Raw(a, b byte) *Script {
	s.finish()
	s.pairs = append(s.pairs, Pair{Field: (s.channel + 1) / 2, Data: [2]byte{Odd(a), Odd(b)}})
	return s
}

// Wait writes filler.
func (s *Script) Wait(pairs int) *Script {
	for range pairs {
		s.Raw(0, 0)
	}
	return s
}

// Styles of text.
const (
	Plain     = 0x00
	Underline = 0x01
	Italics   = 0x0e
)

// MidRow begins a style, with a code that takes a column.
func (s *Script) MidRow(style byte) *Script { return s.Code(0x11, 0x20|style) }

// Address moves the cursor to the first column of a row, 1 to 15, and begins a style.
func (s *Script) Address(row int, style byte) *Script {
	a, b := address(row)
	return s.Code(a, b|0x40|style)
}

// Indent moves the cursor to a column, 0 to 31, of a row, 1 to 15.
func (s *Script) Indent(row, column int) *Script {
	a, b := address(row)
	s.Code(a, b|0x50|byte(column/4)<<1)
	if tabs := column % 4; tabs > 0 {
		s.Code(0x17, 0x20|byte(tabs))
	}
	return s
}

// address returns the bits of a row in the two bytes of an address.
func address(row int) (a, b byte) {
	firsts := map[byte]string{
		0x11: "\x01\x02", 0x12: "\x03\x04", 0x15: "\x05\x06", 0x16: "\x07\x08", 0x17: "\x09\x0a",
		0x10: "\x0b", 0x13: "\x0c\x0d", 0x14: "\x0e\x0f",
	}
	for first, rows := range firsts {
		if at := strings.IndexByte(rows, byte(row)); at >= 0 {
			return first, byte(at) << 5
		}
	}
	panic("CEA-608 has the rows 1 to 15")
}

// The characters that differ from ASCII. Those of the first line are in pairs of characters; the
// codes of the others are in Text.
const (
	standard      = "*á\\é^í_ó`ú{ç|÷}Ñ~ñ\x7f█"
	special       = "®°½¿™¢£♪à èâêîôû"
	spanishFrench = "ÁÉÓÚÜü‘¡*’—©℠•“”ÀÂÇÈÊËëÎÏïÔÙùÛ«»"
	otherExtended = "ÃãÍÌìÒòÕõ{}\\^_|~ÄäÖöß¥¤│ÅåØø┌┐└┘"
)

// Text writes characters. Before those of the extended sets it writes an e, as encoders do for
// receivers that do not have them.
func (s *Script) Text(text string) *Script {
	for _, char := range text {
		odd := []rune(standard)
		switch at := indexRune(odd, char); {
		case at >= 0 && at%2 == 1:
			s.char(byte(odd[at-1]))
		case at < 0 && char >= ' ' && char < 0x7f:
			s.char(byte(char))
		default:
			s.other(char)
		}
	}
	return s
}

// other writes a character that has a code of its own.
func (s *Script) other(char rune) {
	if at := indexRune([]rune(special), char); at >= 0 {
		s.Code(0x11, 0x30|byte(at))
		return
	}
	for i, set := range []string{spanishFrench, otherExtended} {
		if at := indexRune([]rune(set), char); at >= 0 {
			s.char('e')
			s.Code(0x12|byte(i), 0x20|byte(at))
			return
		}
	}
	panic("CEA-608 has no " + string(char))
}

func indexRune(list []rune, char rune) int {
	for i, r := range list {
		if r == char {
			return i
		}
	}
	return -1
}

// char writes a character when there are two.
func (s *Script) char(c byte) {
	if s.half == 0 {
		s.half = c
		return
	}
	first := s.half
	s.half = 0
	s.Raw(first, c)
}

// finish writes a character that waits.
func (s *Script) finish() {
	if first := s.half; first != 0 {
		s.half = 0
		s.Raw(first, 0)
	}
}

// PopOn loads lines into the last rows, and shows them instead of what was shown.
func (s *Script) PopOn(lines ...string) *Script {
	s.Command(RCL, ENM)
	s.lines(lines)
	return s.Command(EDM, EOC)
}

// PaintOn writes lines into the last rows of the screen.
func (s *Script) PaintOn(lines ...string) *Script {
	s.Command(RDC)
	s.lines(lines)
	return s
}

func (s *Script) lines(lines []string) {
	for i, line := range lines {
		s.Address(16-len(lines)+i, Plain).Text(line)
	}
	s.finish()
}

// RollUp rolls some rows up, 2 to 4, and writes a line below them.
func (s *Script) RollUp(rows int, line string) *Script {
	s.Command(RU2+byte(rows)-2, CR).Address(15, Plain).Text(line)
	s.finish()
	return s
}

// Erase erases the screen.
func (s *Script) Erase() *Script { return s.Command(EDM) }

// Odd returns a byte of seven bits with its parity bit.
func Odd(b byte) byte {
	if bits.OnesCount8(b&0x7f)%2 == 0 {
		return b | 0x80
	}
	return b & 0x7f
}

// T35 returns pairs of one frame, at most 31, as registered user data: what a message of SEI has,
// and behind its type a metadata OBU of AV1.
func T35(pairs ...Pair) []byte {
	data := append([]byte("\xb5\x00\x31GA94\x03"), 0xc0|byte(len(pairs)), 0xff)
	for _, p := range pairs {
		data = append(data, 0xfc|byte(p.Field-1), p.Data[0], p.Data[1])
	}
	return append(data, 0xff)
}

// SEI returns pairs of one frame, at most 31, as a NAL unit of H.264. It needs no bytes against
// start codes: filler has its parity bits, so there are never two zeros.
func SEI(pairs ...Pair) []byte {
	data := T35(pairs...)
	const unit, registered, end = 6, 4, 0x80
	return append(append([]byte{unit, registered, byte(len(data))}, data...), end)
}
