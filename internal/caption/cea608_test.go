package caption

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/caption/cea608test"
)

// cea608Frame is the time between two pairs in these tests.
const cea608Frame = 10 * time.Millisecond

// decode608 returns the cues of a channel. Pair n is shown at n frames, and the last cue ends with
// the last pair.
func decode608(channel int, pairs []cea608test.Pair) (cues []Cue) {
	d := NewCEA608(channel)
	var at time.Duration
	for _, p := range pairs {
		cues = append(cues, d.Add(CEA608Pair{At: at, Field: p.Field, Data: p.Data})...)
		at += cea608Frame
	}
	return append(cues, d.Flush(at)...)
}

// cue608 is a cue from one pair to another.
func cue608(from, to int, text string, settings ...string) Cue {
	return Cue{
		Start: time.Duration(from) * cea608Frame, End: time.Duration(to) * cea608Frame,
		Text: text, Settings: strings.Join(settings, " "),
	}
}

func TestCEA608Modes(t *testing.T) {
	const rcl, enm, edm, eoc, rdc = cea608test.RCL, cea608test.ENM, cea608test.EDM, cea608test.EOC, cea608test.RDC
	const plain = cea608test.Plain
	script := func() *cea608test.Script { return cea608test.New(1) }
	tests := []struct {
		name   string
		script *cea608test.Script
		want   []Cue
	}{
		{"pop-on", script().PopOn("Hello", "you").Wait(50).Erase(), []Cue{cue608(15, 67, "Hello\nyou")}},
		{
			"pop-on, one after the other", script().PopOn("one").Wait(10).PopOn("two"),
			[]Cue{cue608(10, 30, "one"), cue608(32, 34, "two")},
		},
		{
			"pop-on without erasing", script().Command(rcl, enm).Address(15, plain).Text("one").Command(eoc, rcl, enm).Address(15, plain).Text("two").Command(eoc),
			[]Cue{cue608(8, 18, "one"), cue608(18, 20, "two")},
		},
		{"pop-on, loaded and not shown", script().PopOn("one").Command(rcl).Address(1, plain).Text("never").Wait(5), []Cue{cue608(10, 24, "one")}},
		{"pop-on, erased in hidden memory", script().Command(rcl).Address(15, plain).Text("gone").Command(enm, eoc).Wait(5), nil},
		{"pop-on without a first command", script().Address(15, plain).Text("tuned in").Command(eoc).Wait(5), nil},

		{
			"roll-up", script().RollUp(2, "one").RollUp(2, "two").RollUp(2, "three").Wait(4),
			[]Cue{cue608(6, 10, "one"), cue608(10, 18, "one\ntwo"), cue608(18, 29, "two\nthree")},
		},
		{
			"roll-up with four rows", script().RollUp(4, "1").RollUp(4, "2").RollUp(4, "3").RollUp(4, "4").RollUp(4, "5"),
			[]Cue{cue608(6, 9, "1"), cue608(9, 16, "1\n2"), cue608(16, 23, "1\n2\n3"), cue608(23, 30, "1\n2\n3\n4"), cue608(30, 35, "2\n3\n4\n5")},
		},
		{
			"roll-up, fewer rows", script().RollUp(3, "one").RollUp(3, "two").RollUp(3, "3").RollUp(2, "4"),
			[]Cue{cue608(6, 10, "one"), cue608(10, 18, "one\ntwo"), cue608(18, 23, "one\ntwo\n3"), cue608(23, 25, "two\n3"), cue608(25, 30, "3\n4")},
		},
		{
			"roll-up at the top", script().Command(cea608test.RU2, cea608test.CR).Address(2, plain).Text("one").Command(cea608test.CR).Text("two"),
			[]Cue{cue608(6, 8, "one", "line:15%"), cue608(8, 12, "one\ntwo", "line:10%")},
		},
		{
			"roll-up that moves", script().RollUp(2, "one").Address(3, plain).Wait(2),
			[]Cue{cue608(6, 8, "one"), cue608(8, 12, "one", "line:20%")},
		},
		{
			"roll-up needs rows above it", script().Command(cea608test.RU2+2).Address(1, plain).Text("four rows"),
			[]Cue{cue608(4, 9, "four rows", "line:26%")},
		},
		{
			"roll-up, a line that begins at the left", script().Command(cea608test.RU2).Indent(15, 28).Text("one").Command(cea608test.CR).Text("0123456789"),
			[]Cue{cue608(4, 6, "one"), cue608(6, 13, "one\n0123456789")},
		},
		{
			"roll-up, a line that begins plain", script().Command(cea608test.RU2).Address(15, cea608test.Italics).Text("one").Command(cea608test.CR).Text("two"),
			[]Cue{cue608(4, 6, "<i>one</i>"), cue608(6, 10, "<i>one</i>\ntwo")},
		},
		{"roll-up erases what was loaded", script().Command(rcl).Address(15, plain).Text("one").Command(cea608test.RU2, eoc).Wait(1), nil},
		{"roll-up ends pop-on", script().PopOn("one").RollUp(2, "two"), []Cue{cue608(10, 12, "one"), cue608(18, 20, "two")}},
		{
			"roll-up, then pop-on", script().RollUp(2, "one").PopOn("two").Wait(1),
			[]Cue{cue608(6, 16, "one"), cue608(18, 21, "two")},
		},
		{
			"roll-up that goes on after text mode", script().RollUp(2, "one ").Command(cea608test.TR).Text("ticker").Command(cea608test.RU2).Text("two"),
			[]Cue{cue608(6, 17, "one two")},
		},

		{"paint-on", script().PaintOn("one", "two").Wait(6).Erase(), []Cue{cue608(4, 16, "one\ntwo")}},
		{
			"paint-on in bursts", script().PaintOn("one").Wait(6).Command(rdc).Address(14, plain).Text("two").Wait(1).Erase(),
			[]Cue{cue608(4, 16, "one"), cue608(16, 19, "two\none")},
		},
		{
			"paint-on over what is there", script().PaintOn("one").Wait(6).Address(15, plain).Text("two").Wait(1).Erase(),
			[]Cue{cue608(4, 14, "one"), cue608(14, 17, "two")},
		},
		{
			"paint-on that begins with a style", script().PaintOn("one").Command(rdc).Indent(15, 3).MidRow(cea608test.Italics).Wait(2).Text("two").Erase(),
			[]Cue{cue608(4, 16, "one"), cue608(16, 18, "one <i>two</i>")},
		},
		{
			"paint-on over pop-on", script().PopOn("one").Wait(4).Command(rdc).Indent(15, 4).Text("two").Wait(1).Erase(),
			[]Cue{cue608(10, 20, "one"), cue608(20, 23, "one two")},
		},
		{
			"paint-on, erased to the end of the row", script().PaintOn("one two").Command(rdc).Indent(15, 3).Command(cea608test.DER).Wait(1).Erase(),
			[]Cue{cue608(4, 14, "one two"), cue608(14, 17, "one")},
		},
		{
			"paint-on, erased whole", script().PaintOn("one").Address(15, plain).Command(cea608test.DER).Wait(1).Erase(),
			[]Cue{cue608(4, 8, "one")},
		},
		{
			"an erased row in roll-up", script().Command(cea608test.RU2).Text("ab").Command(cea608test.BS).Wait(2).Command(cea608test.BS).Wait(2),
			[]Cue{cue608(2, 7, "a")},
		},

		{"an end without a mode", script().Command(eoc).Address(15, plain).Text("one").Command(eoc).Wait(1), []Cue{cue608(6, 9, "one")}},
		{"text mode", script().Command(cea608test.TR).Text("a page of text").Command(cea608test.CR).Text("more"), nil},
		{
			"erasing in text mode", script().PaintOn("one").Command(cea608test.TR).Text("text").Command(edm).Text("text"),
			[]Cue{cue608(4, 10, "one")},
		},
		{"the other channel", cea608test.New(2).PopOn("two").Wait(4), nil},
		{"the other field", cea608test.New(3).PopOn("three").Wait(4), nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, decode608(1, test.script.Pairs())); diff != "" {
				t.Errorf("the cues differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCEA608Text(t *testing.T) {
	const plain, italics, underlined = cea608test.Plain, cea608test.Italics, cea608test.Underline
	const bs, der = cea608test.BS, cea608test.DER
	row := strings.Repeat("0123456789", 3) + "01" // 32 characters
	tests := []struct {
		name string
		text func(s *cea608test.Script)
		want string
	}{
		{"ASCII", func(s *cea608test.Script) { s.Text(`!"#$%&'()+,-./09:;<=>?@AZ[]az`) }, `!"#$%&amp;'()+,-./09:;&lt;=&gt;?@AZ[]az`},
		{"an odd number", func(s *cea608test.Script) { s.Text("abc") }, "abc"},
		{"standard", func(s *cea608test.Script) { s.Text("áéíóúç÷Ññ█") }, "áéíóúç÷Ññ█"},
		{"special", func(s *cea608test.Script) { s.Text("®°½¿™¢£♪àèâêîôû") }, "®°½¿™¢£♪àèâêîôû"},
		{"Spanish", func(s *cea608test.Script) { s.Text("ÁÉÓÚÜü‘¡*’—©℠•“”") }, "ÁÉÓÚÜü‘¡*’—©℠•“”"},
		{"French", func(s *cea608test.Script) { s.Text("ÀÂÇÈÊËëÎÏïÔÙùÛ«»") }, "ÀÂÇÈÊËëÎÏïÔÙùÛ«»"},
		{"Portuguese", func(s *cea608test.Script) { s.Text(`ÃãÍÌìÒòÕõ{}\^_|~`) }, `ÃãÍÌìÒòÕõ{}\^_|~`},
		{"German and Danish", func(s *cea608test.Script) { s.Text("ÄäÖöß¥¤│ÅåØø┌┐└┘") }, "ÄäÖöß¥¤│ÅåØø┌┐└┘"},
		{"transparent space", func(s *cea608test.Script) { s.Text("a").Code(0x11, 0x39).Text("b") }, "a b"},
		{"an extended character at the start", func(s *cea608test.Script) { s.Code(0x12, 0x20).Text("b") }, "Áb"},

		{"two rows", func(s *cea608test.Script) { s.Text("two").Address(14, plain).Text("one") }, "one\ntwo"},
		{"rows far from each other", func(s *cea608test.Script) { s.Text("two").Address(1, plain).Text("one") }, "one\ntwo"},
		{"indents and tabs", func(s *cea608test.Script) { s.Text("abc").Indent(15, 10).Text("d").Indent(15, 15).Text("e") }, "abc       d    e"},
		{"tabs up to the last column", func(s *cea608test.Script) { s.Indent(15, 31).Code(0x17, 0x23).Text("x").Indent(15, 28).Text("abc") }, "abcx"},
		{"a longer row", func(s *cea608test.Script) { s.Text(row + "xyz") }, row[:31] + "z"},
		{"an extended character in the last column", func(s *cea608test.Script) { s.Text(row[:31] + "Ä") }, row[:31] + "Ä"},
		{"an extended character before the last column", func(s *cea608test.Script) { s.Text(row[:30] + "Äx") }, row[:30] + "Äx"},

		{"backspace", func(s *cea608test.Script) { s.Text("abx").Command(bs).Text("c") }, "abc"},
		{"backspace in the first column", func(s *cea608test.Script) { s.Command(bs).Text("a").Command(bs, bs).Wait(1).Command(bs).Text("b") }, "b"},
		{"backspace in the last column", func(s *cea608test.Script) { s.Text(row).Command(bs) }, row[:30]},
		{"backspace before the last column", func(s *cea608test.Script) { s.Text(row[:31]).Command(bs) }, row[:30]},
		{"backspace of an extended character", func(s *cea608test.Script) { s.Text("aÄ").Command(bs).Text("b") }, "ab"},
		{"delete to the end of the row", func(s *cea608test.Script) { s.Text("one two").Indent(15, 3).Command(der).Text("!") }, "one!"},

		{"italics", func(s *cea608test.Script) { s.Address(15, italics).Text("all of it") }, "<i>all of it</i>"},
		{"underlined", func(s *cea608test.Script) { s.Address(15, underlined).Text("all") }, "<u>all</u>"},
		{"both", func(s *cea608test.Script) { s.Address(15, italics|underlined).Text("all") }, "<i><u>all</u></i>"},
		{"an indent ends italics", func(s *cea608test.Script) { s.Address(15, italics).Text("a").Indent(15, 4).Text("b") }, "<i>a</i>   b"},
		{"mid-row", func(s *cea608test.Script) { s.Text("a").MidRow(italics).Text("b").MidRow(plain).Text("c") }, "a <i>b</i> c"},
		{"a colour ends italics", func(s *cea608test.Script) { s.Text("a").MidRow(italics).Text("b").MidRow(0x02).Text("c") }, "a <i>b</i> c"},
		{"italics in two rows", func(s *cea608test.Script) {
			s.Address(14, italics).Text("one").Address(15, italics).Text("two")
		}, "<i>one\ntwo</i>"},
		{"text at the right of text has its face", func(s *cea608test.Script) {
			s.Address(15, italics).Text("abcd").Indent(15, 4).Text("e")
		}, "<i>abcde</i>"},
		{"a style behind a tab", func(s *cea608test.Script) {
			s.Text("a").MidRow(italics).Text("b").Code(0x17, 0x22).Text("c")
		}, "a <i>b  c</i>"},
		{"background", func(s *cea608test.Script) { s.Text("a ").Code(0x10, 0x24).Text("b") }, "a b"},
		{"black and underlined", func(s *cea608test.Script) { s.Text("a ").Code(0x17, 0x2f).Text("b") }, "a <u>b</u>"},
		{"flashing takes a column", func(s *cea608test.Script) { s.Text("a").Command(cea608test.FON).Text("b") }, "a b"},
		{"codes that have no meaning", func(s *cea608test.Script) {
			s.Text("a").Code(0x10, 0x70).Code(0x16, 0x30).Code(0x17, 0x30).Code(0x14, 0x3f).Code(0x10, 0x30).Command(0x22, 0x23, cea608test.CR).Text("b")
		}, "ab"},
	}
	for _, test := range tests {
		for channel := 1; channel <= 4; channel++ {
			s := cea608test.New(channel).Command(cea608test.RCL, cea608test.ENM).Address(15, plain)
			test.text(s)
			cues := decode608(channel, s.Command(cea608test.EOC).Wait(1).Pairs())
			if len(cues) != 1 || cues[0].Text != test.want {
				t.Errorf("%s, CC%d: got %+v, want %q", test.name, channel, cues, test.want)
			}
		}
	}
}

func TestCEA608Rows(t *testing.T) {
	want := []string{"10", "15", "20", "26", "31", "36", "42"} // percents; the others are at the bottom
	for row := 1; row <= 15; row++ {
		s := cea608test.New(1).Command(cea608test.RCL).Indent(row, 4).Text("x").Command(cea608test.EOC)
		settings := ""
		if row <= len(want) {
			settings = "line:" + want[row-1] + "%"
		}
		got := decode608(1, s.Pairs())
		if len(got) != 1 || got[0].Settings != settings || readSettings(settings) != settings {
			t.Errorf("row %d: got %+v, want the settings %q", row, got, settings)
		}
	}
}

// What comes damaged, twice or for others is not shown.
func TestCEA608Input(t *testing.T) {
	bad := func(p cea608test.Pair, damaged int) cea608test.Pair {
		p.Data[damaged] ^= 0x80
		return p
	}
	begin := cea608test.New(3).Command(cea608test.RU2).Pairs()
	raw := func(pairs ...byte) []cea608test.Pair {
		s := cea608test.New(3)
		for i := 0; i < len(pairs); i += 2 {
			s.Raw(pairs[i], pairs[i+1])
		}
		return s.Pairs()
	}
	char, back := raw('a', 'b')[0], raw(0x15, 0x21)[0]
	tests := []struct {
		name  string
		pairs []cea608test.Pair
		want  string
	}{
		{"parity of the first", []cea608test.Pair{bad(char, 0)}, "█b"},
		{"parity of the second", []cea608test.Pair{bad(char, 1)}, "a█"},
		{"a code without parity", []cea608test.Pair{char, bad(back, 1)}, "ab"},
		{"a code without parity, and its repetition", []cea608test.Pair{char, bad(back, 1), back}, "a"},
		{"a repetition without parity", []cea608test.Pair{char, back, bad(back, 0)}, "a"},
		{"a repetition with another first byte", []cea608test.Pair{char, back, {Field: 2, Data: [2]byte{back.Data[0] ^ 0x40, back.Data[1]}}}, "a"},
		{"a code that begins without parity", []cea608test.Pair{char, bad(back, 0)}, "ab█!"},
		{"a code three times", []cea608test.Pair{char, char, back, back, back}, "ab"},
		{"a code once", raw('a', 'b', 0x15, 0x21, 'c', 0), "ac"},
		{"filler before a repetition", raw('a', 'b', 0x15, 0x21, 0, 0, 0x15, 0x21), "a"},
		{"text before a repetition", raw('a', 'b', 0x15, 0x21, 'c', 0, 0x15, 0x21), "a"},
		{"filler without parity", []cea608test.Pair{char, {Field: 2}, char}, "abab"},
		{"commands of field 1", raw('a', 'b', 0x14, 0x21), "a"},
		{"XDS", raw('a', 0, 0x01, 0x03, 'T', 'i', 't', 'l', 0x0f, 0x5f, 'b', 0), "ab"},
		{"XDS up to a code", raw('a', 'b', 0x05, 0x01, 'X', 'D', 0x15, 0x21, 'c', 0), "ac"},
		{"what is no character", raw('a', 0x05, 0, 'b'), "ab"},
		{"the other channel", raw('a', 0, 0x1d, 0x25, 'x', 'y', 0x1d, 0x2c, 0x15, 0x25, 'b', 0), "ab"},
	}
	for _, test := range tests {
		cues := decode608(3, append(slices.Clone(begin), test.pairs...))
		if len(cues) != 1 || cues[0].Text != test.want {
			t.Errorf("%s: got %+v, want %q", test.name, cues, test.want)
		}
	}
}

func TestCEA608Silence(t *testing.T) {
	second := func(n int) time.Duration { return time.Duration(n) * time.Second }
	d := NewCEA608(1)
	var got []Cue
	add := func(at time.Duration, s *cea608test.Script) {
		for _, p := range s.Pairs() {
			got = append(got, d.Add(CEA608Pair{At: at, Field: p.Field, Data: p.Data})...)
		}
	}
	add(second(1), cea608test.New(1).PopOn("one"))
	add(second(16), cea608test.New(1).Wait(1))
	add(second(18), cea608test.New(1).Wait(1)) // 16 seconds after the first one
	add(second(20), cea608test.New(1).PopOn("two"))
	add(second(30), cea608test.New(1).Command(cea608test.RCL).Text("next")) // the encoder is there
	got = append(got, d.Flush(second(40))...)
	got = append(got, d.Flush(second(41))...)
	got = append(got, d.Flush(second(60))...)
	got = append(got, d.Flush(second(61))...)
	want := []Cue{
		{Start: second(1), End: second(17), Text: "one"},
		{Start: second(20), End: second(40), Text: "two"},
		{Start: second(40), End: second(41), Text: "two"},
		{Start: second(41), End: second(46), Text: "two"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the cues differ (-want +got):\n%s", diff)
	}
}

// Times that do not go on make no cues that go back.
func TestCEA608TimesBack(t *testing.T) {
	d := NewCEA608(1)
	var got []Cue
	for i, p := range cea608test.New(1).PopOn("one").PopOn("two").PopOn("three").Wait(40).Pairs() {
		at := ms(1000 + 10*i)
		if i > 20 {
			at -= ms(200)
		}
		got = append(got, d.Add(CEA608Pair{At: at, Field: p.Field, Data: p.Data})...)
	}
	got = append(got, d.Flush(ms(2000))...)
	want := []Cue{{Start: ms(1100), End: ms(1200), Text: "one"}, {Start: ms(1200), End: ms(2000), Text: "three"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the cues differ (-want +got):\n%s", diff)
	}
}

func TestCEA608Order(t *testing.T) {
	frame := func(n int) time.Duration { return time.Duration(n) * cea608Frame }
	pair := func(shown int, b byte) CEA608Pair {
		return CEA608Pair{At: frame(shown), Field: 1, Data: [2]byte{b, b}}
	}
	var o CEA608Order
	var got []CEA608Pair
	// The order of I P B b b: frame 4 is decoded before 2, and 2 before 1 and 3.
	for decoded, shown := range []int{2, 6, 4, 3, 5, 10, 8, 7, 9} {
		o.Add(pair(shown, 'a'))
		o.Add(pair(shown, 'b')) // a frame may have two pairs, whose order counts
		taken := o.Take(frame(decoded))
		for _, p := range taken {
			if p.At > frame(decoded) {
				t.Errorf("a pair at %v is taken at %v", p.At, frame(decoded))
			}
		}
		got = append(got, taken...)
	}
	got = append(got, o.Take(time.Hour)...)
	var want []CEA608Pair
	for shown := 2; shown <= 10; shown++ {
		want = append(want, pair(shown, 'a'), pair(shown, 'b'))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the pairs differ (-want +got):\n%s", diff)
	}
	// Frames that are never shown do not fill the memory.
	for range 10 * cea608Waiting {
		o.Add(pair(1000, 'c'))
		o.Take(0)
	}
	if len(o.waiting) > cea608Waiting {
		t.Errorf("%d pairs wait", len(o.waiting))
	}
}

func TestCEA608Channels(t *testing.T) {
	tests := []struct {
		name    string
		scripts []*cea608test.Script
		want    []int
	}{
		{"none", nil, nil},
		{"one", []*cea608test.Script{cea608test.New(1).RollUp(2, "a")}, []int{1}},
		{"two of a field", []*cea608test.Script{cea608test.New(2).PopOn("a"), cea608test.New(1).PopOn("b")}, []int{1, 2}},
		{"all", []*cea608test.Script{cea608test.New(4).PopOn("a"), cea608test.New(3).PopOn("a"), cea608test.New(2).PopOn("a"), cea608test.New(1).PopOn("b")}, []int{1, 2, 3, 4}},
		{"erased, not used", []*cea608test.Script{cea608test.New(3).Erase().Command(cea608test.RCL).Text(" ")}, nil},
		{"text mode", []*cea608test.Script{cea608test.New(1).Command(cea608test.TR).Text("text")}, nil},
		{"XDS", []*cea608test.Script{cea608test.New(3).Erase().Raw(0x01, 0x03).Raw('T', 'i').Raw(0x0f, 0x1d)}, nil},
	}
	for _, test := range tests {
		var c CEA608Channels
		c.Add(CEA608Pair{Field: 3})
		for _, script := range test.scripts {
			for _, p := range script.Pairs() {
				c.Add(CEA608Pair{Field: p.Field, Data: p.Data})
			}
		}
		if got := c.Found(); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

// FuzzCEA608 decodes any pairs: cues are in order and can be written, and little memory is used.
func FuzzCEA608(f *testing.F) {
	for channel := 1; channel <= 4; channel++ {
		s := cea608test.New(channel).PopOn("Hëllo", "you ♪").RollUp(3, "one").RollUp(3, "two")
		s.PaintOn("three").MidRow(cea608test.Italics).Text("four").Command(cea608test.BS, cea608test.DER)
		var data []byte
		for _, p := range s.Erase().Pairs() {
			data = append(data, 33, p.Data[0], p.Data[1])
		}
		f.Add(channel, byte(33), data)
	}
	f.Fuzz(func(t *testing.T, channel int, step byte, data []byte) {
		channel = int(uint(channel)%4) + 1
		d, last := NewCEA608(channel), time.Duration(0)
		var order CEA608Order
		var channels CEA608Channels
		var all []Cue
		check := func(cues []Cue) {
			for _, c := range cues {
				if c.Start < last || c.End <= c.Start || empty(c.Text) || len(c.Text) > MaxText {
					t.Fatalf("after %v comes the cue %+v", last, c)
				}
				last = c.End
			}
			all = append(all, cues...)
		}
		for i := 0; i+2 < len(data); i += 3 {
			at := time.Duration(int(data[i])+int(step)*i) * time.Millisecond
			order.Add(CEA608Pair{At: at, Field: (channel + 1) / 2, Data: [2]byte(data[i+1:])})
			for _, p := range order.Take(at - ms(40)) {
				channels.Add(p)
				check(d.Add(p))
			}
			if data[i] == 0 {
				check(d.Flush(at))
			}
		}
		check(d.Flush(time.Hour))
		if len(order.waiting) > cea608Waiting || len(all) > 0 && len(channels.Found()) == 0 {
			t.Fatalf("%d pairs wait; %d cues of the channels %v", len(order.waiting), len(all), channels.Found())
		}
		if len(all) == 0 {
			return
		}
		if again, err := Read(WebVTT(all), ""); err != nil || !slices.Equal(again, all) {
			t.Fatalf("what is written differs when it is read: %v\n%q\n%q", err, all, again)
		}
	})
}

// BenchmarkCEA608 decodes a minute of captions of a channel, at 30 pairs a second.
func BenchmarkCEA608(b *testing.B) {
	words := strings.Fields("the quick brown fox jumps over the lazy dog and never comes back")
	random := rand.New(rand.NewPCG(1, 2))
	s := cea608test.New(1)
	for len(s.Pairs()) < 30*60 {
		line := words[random.IntN(len(words))] + " " + words[random.IntN(len(words))]
		s.RollUp(3, line).Wait(random.IntN(30))
	}
	pairs := s.Pairs()
	b.ReportAllocs()
	for b.Loop() {
		if len(decode608(1, pairs)) == 0 {
			b.Fatal("no cues")
		}
	}
}
