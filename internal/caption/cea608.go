package caption

import (
	"fmt"
	"time"
)

// The numbers of rows and columns of the screen.
const (
	cea608Rows    = 15
	cea608Columns = 32
)

// cea608Silence is how long captions are shown without data for their channel. Receivers erase them
// then (CTA-608-E, C.9): the encoder has gone, or the code that erases was lost.
const cea608Silence = 16 * time.Second

// cea608Mode is how captions come to the screen.
type cea608Mode byte

const (
	cea608Unknown cea608Mode = iota // what comes before the first command is ignored
	cea608PopOn                     // they are loaded into hidden memory, and shown at once
	cea608RollUp                    // they are written into the last of some rows, which then roll up
	cea608PaintOn                   // they are written to where they are shown
)

// cea608Cell is a place of the screen. Colours are not passed on: most captions are white, and
// players let their viewers choose.
type cea608Cell struct {
	char rune // 0 = none
	face face
}

func (c cea608Cell) blank() bool { return c.char == 0 || c.char == ' ' }

type (
	cea608Row    [cea608Columns]cea608Cell
	cea608Screen [cea608Rows]cea608Row
)

// CEA608 decodes the closed captions of one channel into cues (CTA-608-E, also 47 CFR 79.101).
//
// A cue is what the screen shows between two changes. Characters that are written to the screen
// one by one do not count as changes: the cue has the text that there is in the end, from the
// first character on. So there is a cue for each state of rows that roll up, up to the carriage
// return, and one for each burst of paint-on.
type CEA608 struct {
	field, channel int
	input          cea608Input

	mode          cea608Mode
	shown, hidden cea608Screen
	row, column   int  // of the cursor; in roll-up mode the row is that of the new text
	depth         int  // the number of rows that roll up
	face          face // of text that has none at its left

	at    time.Duration // the time of the last pair
	heard time.Duration // the time of the last one for the channel
	start time.Duration // when what is shown began
	// settled says that the next change of the screen begins a cue, also if characters are written:
	// before is what was shown when that was decided.
	settled bool
	before  cea608Screen
	cues    []Cue
}

// NewCEA608 returns the decoder of a channel, 1 to 4 for CC1 to CC4.
func NewCEA608(channel int) *CEA608 {
	return &CEA608{field: (channel + 1) / 2, channel: (channel + 1) % 2}
}

// Add takes a pair, in the order in which frames are shown, and returns the cues that are complete
// with it.
func (d *CEA608) Add(p CEA608Pair) []Cue {
	if p.Field != d.field {
		return nil
	}
	d.advance(p.At)
	if code, ok := d.input.next(p); ok && code.channel == d.channel {
		d.heard = d.at
		d.decode(code)
	}
	return d.take()
}

// Flush returns what was shown up to a time, and what is complete. What stays on the screen is a
// cue of its own afterwards, so it may be called at the end of each segment as well as at the end.
func (d *CEA608) Flush(at time.Duration) []Cue {
	d.advance(at)
	d.end(&d.shown)
	return d.take()
}

func (d *CEA608) take() []Cue {
	cues := d.cues
	d.cues = nil
	return cues
}

// advance goes to a time, never back.
func (d *CEA608) advance(at time.Duration) {
	if silent := d.heard + cea608Silence; at > silent && !d.shown.blank() {
		d.at = max(d.at, silent)
		d.replace(func() { d.shown = cea608Screen{} })
	}
	d.at = max(d.at, at)
}

// decode does what a code says.
func (d *CEA608) decode(c cea608Code) {
	command := c.command()
	switch {
	case command != 0:
		d.command(command)
	case d.mode == cea608Unknown:
	case !c.control():
		d.write(cea608Standard(c.a))
		d.write(cea608Standard(c.b))
	case c.b >= 0x40:
		d.address(c.a, c.b)
	case c.a == 0x17 && c.b >= 0x21 && c.b <= 0x23: // tab offset
		d.column = min(d.column+int(c.b&3), cea608Columns-1)
	case c.a == 0x11 && c.b < 0x30: // mid-row code
		d.style(cea608Face(c.b))
	case c.a == 0x11:
		d.special(cea608Special[c.b-0x30])
	case c.a == 0x12, c.a == 0x13:
		d.stepBack()
		d.write(cea608Extended[c.a-0x12][c.b-0x20])
	case c.a == 0x10 && c.b < 0x30, c.a == 0x17 && c.b == 0x2d: // colours behind the text
		d.stepBack()
		d.write(' ')
	case c.a == 0x17 && (c.b == 0x2e || c.b == 0x2f): // black text
		d.stepBack()
		d.style(cea608Face(c.b & 1))
	}
}

// command does one of the commands.
func (d *CEA608) command(command byte) {
	switch command {
	case cea608RCL:
		d.mode = cea608PopOn
	case cea608RU2, cea608RU3, cea608RU4:
		d.rollUp(int(command - cea608RU2 + 2))
	case cea608RDC:
		d.mode = cea608PaintOn
		d.settle() // it begins each burst
	case cea608EDM:
		d.replace(func() { d.shown = cea608Screen{} })
	case cea608ENM:
		d.hidden = cea608Screen{}
	case cea608EOC:
		d.mode = cea608PopOn
		d.replace(func() { d.shown, d.hidden = d.hidden, d.shown })
	}
	if d.mode == cea608Unknown {
		return
	}
	switch command {
	case cea608BS:
		d.backspace()
	case cea608DER:
		d.erase(d.column, cea608Columns)
	case cea608CR:
		d.carriageReturn()
	case cea608FON:
		d.write(' ') // flashing is not passed on, but the code takes a column
	}
}

// cea608Face returns the face in the second byte of a mid-row code or an address.
func cea608Face(b byte) (f face) {
	const italics = 7 // in the place of a colour
	if b>>1&7 == italics {
		f |= italic
	}
	if b&1 != 0 {
		f |= underline
	}
	return f
}

// cea608RowOf are the rows of addresses, by their first byte and a bit of the second; 0 = none.
var cea608RowOf = [8][2]int{{11, 0}, {1, 2}, {3, 4}, {12, 13}, {14, 15}, {5, 6}, {7, 8}, {9, 10}}

// address moves the cursor (a preamble address code).
func (d *CEA608) address(a, b byte) {
	const indent = 0x10
	row := cea608RowOf[a&7][b>>5&1] - 1
	if row < 0 {
		return
	}
	switch d.mode {
	case cea608RollUp:
		row = max(row, d.depth-1)
		d.moveRows(row)
	case cea608PaintOn:
		if !d.shown[row].blank() {
			d.settle()
		}
	}
	d.row, d.column, d.face = row, 0, cea608Face(b)
	if b&indent != 0 {
		d.column, d.face = int(b>>1&7)*4, cea608Face(b&1)
	}
}

// memory returns what characters are written to.
func (d *CEA608) memory() *cea608Screen {
	if d.mode == cea608PopOn {
		return &d.hidden
	}
	return &d.shown
}

// write writes a character with the face of the one at its left (CTA-608-E, C.7); 0 = nothing.
func (d *CEA608) write(char rune) {
	if char == 0 {
		return
	}
	f := d.face
	if d.column > 0 {
		if left := d.memory()[d.row][d.column-1]; left.char != 0 {
			f = left.face
		}
	}
	d.put(cea608Cell{char, f})
}

// style begins another face, with a code that takes a column.
func (d *CEA608) style(f face) {
	d.face = f
	d.put(cea608Cell{' ', f})
}

// special writes a special character. The transparent space erases.
func (d *CEA608) special(char rune) {
	if char == 0 {
		d.put(cea608Cell{})
		return
	}
	d.write(char)
}

// put writes a cell and moves the cursor, which stays in the last column.
func (d *CEA608) put(c cea608Cell) {
	screen := d.memory()
	before := *screen
	screen[d.row][d.column] = c
	d.column = min(d.column+1, cea608Columns-1)
	d.painted(&before)
}

// stepBack moves the cursor to the character before it, which an extended character replaces: it
// is one for receivers that do not know the other. Behind the last column there is no cursor.
func (d *CEA608) stepBack() {
	last := d.column == cea608Columns-1 && d.memory()[d.row][d.column].char != 0
	if d.column > 0 && !last {
		d.column--
	}
}

// backspace erases the character before the cursor. In the last column it erases the one before it
// too (CTA-608-E, C.13).
func (d *CEA608) backspace() {
	if d.column == 0 {
		return
	}
	d.column--
	to := d.column + 1
	if to == cea608Columns-1 {
		to = cea608Columns
	}
	d.erase(d.column, to)
}

// erase erases columns of the row of the cursor.
func (d *CEA608) erase(from, to int) {
	screen := d.memory()
	before := *screen
	clear(screen[d.row][from:to])
	d.painted(&before)
}

// rollUp begins roll-up mode, or changes the number of rows.
func (d *CEA608) rollUp(depth int) {
	if d.mode != cea608RollUp {
		d.replace(func() { d.shown = cea608Screen{} })
		d.hidden = cea608Screen{}
		d.mode, d.row, d.column, d.face = cea608RollUp, cea608Rows-1, 0, 0
	}
	d.depth = depth
	d.replace(func() { clear(d.shown[:max(0, d.row-depth+1)]) })
}

// moveRows moves the rows that roll up so that a row is their last one.
func (d *CEA608) moveRows(last int) {
	if last == d.row {
		return
	}
	d.replace(func() {
		before := d.shown
		d.shown = cea608Screen{}
		for i := range min(d.depth, d.row+1, last+1) {
			d.shown[last-i] = before[d.row-i]
		}
	})
}

// carriageReturn rolls the rows up. Other modes do not have it.
func (d *CEA608) carriageReturn() {
	if d.mode != cea608RollUp {
		return
	}
	d.replace(func() {
		first := max(0, d.row-d.depth+1)
		copy(d.shown[first:d.row], d.shown[first+1:])
		d.shown[d.row] = cea608Row{}
	})
	d.column, d.face = 0, 0
}

// replace changes the screen as a whole.
func (d *CEA608) replace(change func()) {
	before := d.shown
	if change(); !d.shown.looksAs(&before) {
		d.end(&before)
		d.settled = false
	}
}

// settle lets the next change of the screen begin a cue.
func (d *CEA608) settle() { d.settled, d.before = !d.shown.blank(), d.shown }

// painted is called after cells were changed.
func (d *CEA608) painted(before *cea608Screen) {
	switch {
	case d.memory() != &d.shown:
	case before.blank():
		d.start = d.at
	case d.settled && !d.shown.looksAs(&d.before):
		d.end(&d.before)
		d.settled = false
	case !d.settled && d.shown.blank():
		d.end(before)
	}
}

// end ends what the screen showed, and begins a cue.
func (d *CEA608) end(before *cea608Screen) {
	c := before.cue()
	// As in files; see list.add.
	c.Start, c.End = d.start.Round(time.Millisecond), d.at.Round(time.Millisecond)
	d.start = d.at
	if c.Text != "" && c.End > c.Start {
		d.cues = append(d.cues, c)
	}
}

// blank reports whether there is no text.
func (s *cea608Screen) blank() bool {
	for i := range s {
		if !s[i].blank() {
			return false
		}
	}
	return true
}

// looksAs reports whether another screen has the same text in the same places.
func (s *cea608Screen) looksAs(other *cea608Screen) bool {
	for i := range s {
		for j, c := range s[i] {
			if o := other[i][j]; c != o && !(c.blank() && o.blank()) {
				return false
			}
		}
	}
	return true
}

func (r *cea608Row) blank() bool {
	for _, c := range r {
		if !c.blank() {
			return false
		}
	}
	return true
}

// cue returns a cue with the text, which has no times.
func (s *cea608Screen) cue() (c Cue) {
	var runs []run
	first, last := -1, -1
	for i := range s {
		if s[i].blank() {
			continue
		}
		if last = i; first < 0 {
			first = i
		}
		runs = append(s[i].appendRuns(runs), run{text: "\n"})
	}
	if last < cea608Rows/2 {
		// The rows have the picture without a tenth of its height above and below them.
		c.Settings = fmt.Sprintf("line:%d%%", 10+80*first/cea608Rows)
	}
	c.Text = markup(runTokens(runs), 0, 0)
	return c
}

// appendRuns adds the text of a row.
func (r *cea608Row) appendRuns(runs []run) []run {
	var text []rune
	for i, c := range r {
		text = append(text, max(c.char, ' '))
		if i == len(r)-1 || r[i+1].face != c.face {
			runs, text = append(runs, run{string(text), c.face}), text[:0]
		}
	}
	return runs
}
