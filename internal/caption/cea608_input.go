package caption

import (
	"math/bits"
	"slices"
	"time"
)

// CEA608Pair is two bytes of closed captions, as a frame has them beside its picture.
type CEA608Pair struct {
	At    time.Duration // when the frame is shown
	Field int           // 1 has the channels CC1 and CC2, 2 has CC3 and CC4
	Data  [2]byte       // with parity bits
}

// CEA608Order puts pairs of frames that come in decode order, into the order in which the frames
// are shown. Its zero value is ready.
type CEA608Order struct{ waiting []CEA608Pair }

// cea608Waiting is the maximum number of pairs that wait: as many as 16 frames can have, which is
// the number that decoders of all codecs hold back.
const cea608Waiting = 16 * 31

// Add adds a pair of the frame that is decoded next.
func (o *CEA608Order) Add(p CEA608Pair) {
	at := len(o.waiting)
	for at > 0 && o.waiting[at-1].At > p.At {
		at--
	}
	o.waiting = slices.Insert(o.waiting, at, p)
}

// Take returns the pairs that can't have earlier ones after them, once all frames up to a decode
// time were added: no frame is shown before it is decoded.
func (o *CEA608Order) Take(decoded time.Duration) []CEA608Pair {
	n := max(0, len(o.waiting)-cea608Waiting)
	for n < len(o.waiting) && o.waiting[n].At <= decoded {
		n++
	}
	if n == 0 {
		return nil
	}
	taken := slices.Clone(o.waiting[:n])
	o.waiting = slices.Delete(o.waiting, 0, n)
	return taken
}

// CEA608Channels notes which channels have captions. Its zero value is ready.
type CEA608Channels struct {
	inputs [2]cea608Input
	found  [4]bool
}

// Add takes a pair, in the order in which frames are shown.
func (c *CEA608Channels) Add(p CEA608Pair) {
	if p.Field != 1 && p.Field != 2 {
		return
	}
	// Text counts, not codes: some encoders clear all channels and use one.
	code, ok := c.inputs[p.Field-1].next(p)
	if ok && code.visible() {
		c.found[2*(p.Field-1)+code.channel] = true
	}
}

// Found returns the channels that have had text: 1 is CC1, 4 is CC4.
func (c *CEA608Channels) Found() (channels []int) {
	for i, found := range c.found {
		if found {
			channels = append(channels, i+1)
		}
	}
	return channels
}

// cea608Code is a control code or two characters, without parity bits.
type cea608Code struct {
	channel int  // 0 or 1, of those of the field
	a, b    byte // of a control code, a is that of channel 0
}

func (c cea608Code) control() bool { return isCEA608Control(c.a) }

// visible reports whether there is a character that is no space.
func (c cea608Code) visible() bool {
	switch c.a {
	case 0x11:
		return c.b >= 0x30 && c.b < 0x40 && cea608Special[c.b-0x30] != 0
	case 0x12, 0x13:
		return c.b < 0x40
	}
	return !c.control() && (c.a > ' ' || c.b > ' ')
}

func isCEA608Control(a byte) bool { return a >= 0x10 && a < 0x20 }

// command returns the second byte of a command, 0 for other codes. Field 2 has a first byte of
// its own for them; as the fields are known here, both are taken in both.
func (c cea608Code) command() byte {
	if (c.a == 0x14 || c.a == 0x15) && c.b < 0x30 {
		return c.b
	}
	return 0
}

// The commands.
const (
	cea608RCL = 0x20 + iota // resume caption loading: pop-on
	cea608BS                // backspace
	_
	_
	cea608DER // delete to end of row
	cea608RU2 // roll-up with 2 rows
	cea608RU3
	cea608RU4
	cea608FON // flash on
	cea608RDC // resume direct captioning: paint-on
	cea608TR  // text restart
	cea608RTD // resume text display
	cea608EDM // erase displayed memory
	cea608CR  // carriage return
	cea608ENM // erase non-displayed memory
	cea608EOC // end of caption: show what was loaded
)

// cea608Input finds out what each pair of a field is and for which channel.
type cea608Input struct {
	known   bool // there was a control code, so the channel is known
	channel int
	text    [2]bool // the channels are in text mode, whose text is no caption
	xds     bool    // data about the program (XDS) is between the captions of field 2
	last    [2]byte // the control code before this pair, of which a repetition is expected
}

// next reads a pair. ok is false if it has nothing for captions.
func (in *cea608Input) next(p CEA608Pair) (code cea608Code, ok bool) {
	a, b := p.Data[0]&0x7f, p.Data[1]&0x7f
	if a|b == 0 {
		// Filler. It does not come between a control code and its repetition: encoders of 60
		// frames a second fill every second one.
		return code, false
	}
	goodA, goodB := oddParity(p.Data[0]), oddParity(p.Data[1])
	before := in.last
	in.last = [2]byte{}
	switch {
	case before[0] != 0 && goodB && b == before[1] && (a == before[0] || !goodA):
		return code, false // control codes come twice, in case one is damaged
	case goodA && isCEA608Control(a):
		in.xds = false
		if !goodB || b < 0x20 {
			return code, false // what it was is not known; it is repeated
		}
		in.last = [2]byte{a, b}
		return in.control(a, b)
	case goodA && p.Field == 2 && a > 0 && a < 0x10:
		const end = 0x0f
		in.xds = a != end
		return code, false
	case in.xds || !in.known || in.text[in.channel]:
		return code, false
	}
	if !goodA {
		a = cea608Block
	}
	if !goodB {
		b = cea608Block
	}
	return cea608Code{in.channel, a, b}, true
}

// control returns a control code, unless it is for text mode.
func (in *cea608Input) control(a, b byte) (code cea608Code, ok bool) {
	const second = 0x08
	code = cea608Code{int(a & second >> 3), a &^ second, b}
	in.known, in.channel = true, code.channel
	text := &in.text[code.channel]
	switch code.command() {
	case cea608TR, cea608RTD:
		*text = true
	case cea608RCL, cea608RU2, cea608RU3, cea608RU4, cea608RDC, cea608EOC:
		*text = false
	case cea608EDM, cea608ENM:
		return code, true // for captions, also in text mode
	}
	return code, !*text
}

func oddParity(b byte) bool { return bits.OnesCount8(b)&1 == 1 }
