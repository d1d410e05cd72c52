package caption

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

// tx3g returns a sample with styles: first character, one after the last, face.
func tx3g(text string, styles ...[3]int) []byte {
	sample := append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...)
	sample = appendBox(sample, "hlit", []byte{0, 0, 0, 1})
	if styles == nil {
		return sample
	}
	body := binary.BigEndian.AppendUint16(nil, uint16(len(styles)))
	for _, s := range styles {
		body = appendStyle(body, s[0], s[1], face(s[2]))
	}
	return appendBox(sample, "styl", body)
}

func TestTX3G(t *testing.T) {
	tests := []struct {
		name   string
		sample []byte
		want   string // "" = it shows nothing
	}{
		{"nothing", nil, ""},
		{"no text", []byte{0, 0}, ""},
		{"white space", tx3g(" \n"), ""},
		{"text", tx3g("a < b\r\nc"), "a &lt; b\nc"},
		{"styles", tx3g("äb c d", [3]int{0, 1, 1}, [3]int{1, 2, 2}, [3]int{3, 4, 4}, [3]int{5, 6, 15}), "<b>ä</b><i>b</i> <u>c</u> <b><i><u>d</u></i></b>"},
		{"characters outside of the first plane", tx3g("😀a", [3]int{1, 2, 2}), "😀<i>a</i>"},
		{"a style over two lines", tx3g("a\r\nb", [3]int{0, 4, 2}), "<i>a\nb</i>"},
		{"styles that are too long, in another order or empty", tx3g("abc", [3]int{1, 900, 2}, [3]int{0, 1, 1}, [3]int{3, 3, 1}), "a<i>bc</i>"},
		{"control characters", tx3g("\x01 a\u2028b", [3]int{0, 3, 2}), "<i>a</i>\nb"},
		{"UTF-16", tx3g("\xfe\xff\x00a\x30\x42", [3]int{1, 2, 2}), "a<i>あ</i>"},
		{"UTF-16, little endian", tx3g("\xff\xfea\x00\x42\x30", [3]int{1, 2, 2}), "a<i>あ</i>"},
		{"boxes that are cut off", tx3g("a", [3]int{0, 1, 1})[:20], "a"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, ok, err := TX3G(test.sample, ms(1000), ms(2000))
			if err != nil || ok != (test.want != "") || got.Text != test.want {
				t.Fatalf("got %q, %v, %v, want %q", got.Text, ok, err, test.want)
			}
			if !ok {
				return
			}
			checkSame(t, []Cue{got})
			again, _, err := TX3G(AppendTX3G(nil, got), ms(1000), ms(2000))
			if err != nil || again != got {
				t.Errorf("what is written differs when it is read: got %q, %v, want %q", again, err, got)
			}
		})
	}
}

func TestAppendTX3G(t *testing.T) {
	styled := func(text string, styles ...[3]int) []byte {
		sample := tx3g(text, styles...)
		return bytes.Replace(sample, appendBox(nil, "hlit", []byte{0, 0, 0, 1}), nil, 1)
	}
	for _, test := range []struct {
		text string
		want []byte
	}{
		{"", []byte{0, 0}},
		{"a &lt; b", styled("a < b")},
		{"<v Ann>😀 <i>b<b>c</b></i></v>\nd", styled("😀 bc\nd", [3]int{2, 3, 2}, [3]int{3, 4, 3})},
		{"<ruby>漢<rt>kan</rt></ruby>", styled("漢(kan)")},
		{strings.Repeat("a", 1<<16), []byte{0, 0}},
	} {
		if diff := cmp.Diff(test.want, AppendTX3G(nil, Cue{Text: test.text})); diff != "" {
			t.Errorf("%.50q differs (-want +got):\n%s", test.text, diff)
		}
	}
	if got := AppendTX3G([]byte("before"), Cue{Text: "a"}); string(got) != "before\x00\x01a" {
		t.Errorf("got %q after what was there", got)
	}
}

func TestTX3GEntry(t *testing.T) {
	got := TX3GEntry()
	want := "\x00\x00\x00\x40tx3g\x00\x00\x00\x00\x00\x00\x00\x01" + // a sample entry
		"\x00\x00\x00\x00\x01\xff\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00" + // flags, places, colour, box
		"\x00\x00\x00\x00\x00\x01\x00\x10\xff\xff\xff\xff" + // style
		"\x00\x00\x00\x12ftab\x00\x01\x00\x01\x05Arial"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("the entry differs (-want +got):\n%s", diff)
	}
}

// vttc returns the box of a cue from pairs of names and texts.
func vttc(parts ...string) []byte {
	var body []byte
	for i := 0; i < len(parts); i += 2 {
		body = appendBox(body, parts[i], []byte(parts[i+1]))
	}
	return appendBox(nil, "vttc", body)
}

func TestWVTT(t *testing.T) {
	tests := []struct {
		name   string
		sample []byte
		want   []Cue
	}{
		{"nothing", appendBox(nil, "vtte"), nil},
		{"no boxes", nil, nil},
		{"a cue without text", vttc("iden", "1"), nil},
		{
			"two cues and a comment",
			slices.Concat(
				vttc("vsid", "\x00\x00\x00\x01", "iden", "a\n", "sttg", "align:start line:0 x:y", "payl", "<b>a\r\n\r\nb"),
				appendBox(nil, "vtta", []byte("NOTE x")), vttc("payl", "c &amp; d"),
			),
			[]Cue{{ID: "a", Start: ms(1000), End: ms(2000), Settings: "line:0 align:start", Text: "<b>a\nb</b>"}, cue(1000, 2000, "c &amp; d")},
		},
		{"timestamps", vttc("payl", "a<00:01.500>b<00:09.000>c"), []Cue{cue(1000, 2000, "a<00:00:01.500>bc")}},
		{"an identifier that is an arrow", vttc("iden", "-\x01->", "payl", "a"), []Cue{cue(1000, 2000, "a")}},
		{"not UTF-8", vttc("payl", "a\xff"), []Cue{cue(1000, 2000, "a\ufffd")}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := WVTT(test.sample, ms(1000), ms(2000))
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Fatalf("%v, the cues differ (-want +got):\n%s", err, diff)
			}
			if got != nil {
				checkSame(t, got)
			}
		})
	}
}

func TestSTPP(t *testing.T) {
	timed := document("", "<p begin='9s' end='11s'>a</p><p begin='8s' end='9s'>first</p>")
	tests := []struct {
		name, sample string
		want         []Cue
	}{
		{"nothing", "", nil},
		{"no text", document("", ""), nil},
		{"times of the track", timed, []Cue{cue(8000, 9000, "first"), cue(9000, 11_000, "a")}},
		{"no times", document("", "<div><p>a<br/>b</p></div>"), []Cue{cue(10_000, 20_000, "a\nb")}},
		{"no end", document("", "<p begin='12s'>a</p>"), []Cue{cue(12_000, 20_000, "a")}},
		{"no end, and a begin after the sample", document("", "<p begin='22s'>a</p>"), nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := STPP([]byte(test.sample), ms(10_000), ms(20_000))
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Fatalf("%v, the cues differ (-want +got):\n%s", err, diff)
			}
			if got != nil {
				checkSame(t, got)
			}
		})
	}
}

func TestSamplesRefuse(t *testing.T) {
	long := strings.Repeat("a", MaxText+1)
	read := func(reader func([]byte, time.Duration, time.Duration) ([]Cue, error), sample []byte) error {
		_, err := reader(sample, ms(1000), ms(2000))
		return err
	}
	timedText := func(sample []byte, start, end time.Duration) ([]Cue, error) {
		_, _, err := TX3G(sample, start, end)
		return nil, err
	}
	_, _, late := TX3G(tx3g("a"), 0, MaxTime+ms(1))
	for _, test := range []struct {
		name string
		got  error
		want string
	}{
		{"tx3g, no length", read(timedText, []byte{0}), "the subtitle at 00:00:01.000 is cut off"},
		{"tx3g, too short", read(timedText, []byte("\x00\x04abc")), "the subtitle at 00:00:01.000 is cut off"},
		{"tx3g, Latin 1", read(timedText, tx3g("Gr\xfc\xdfe")), "the subtitle at 00:00:01.000 is neither UTF-8 nor UTF-16"},
		{"tx3g, long", read(timedText, tx3g(long)), "the text of the subtitle at 00:00:01.000 is longer than 16 KiB"},
		{"tx3g, late", late, "the subtitle at 00:00:00.000 ends after 1000 hours"},
		{"wvtt, too short", read(WVTT, vttc("payl", "abc")[:18]), "the subtitle at 00:00:01.000 is cut off"},
		{"wvtt, a box that is too long", read(WVTT, appendBox(nil, "vttc", []byte("\x00\x00\x00\xffpayla"))), "the subtitle at 00:00:01.000 is cut off"},
		{"wvtt, a box of no size", read(WVTT, make([]byte, 8)), "the subtitle at 00:00:01.000 is cut off"},
		{"wvtt, long", read(WVTT, vttc("payl", long)), "the text of the subtitle at 00:00:01.000 is longer than 16 KiB"},
		{"stpp, a picture", read(STPP, []byte("<tt/>\x89PNG")), "the subtitle at 00:00:01.000 is no text"},
		{"stpp, a time", read(STPP, []byte(document("", "<p begin='x'>a</p>"))), `the subtitle at 00:00:01.000: line 2: begin="x" is not a time`},
		{"stpp, large", read(STPP, make([]byte, MaxFile+1)), "the subtitle at 00:00:01.000 is larger than 10 MiB"},
	} {
		t.Run(test.name, func(t *testing.T) { checkInvalid(t, test.got, test.want) })
	}
}

func TestJoin(t *testing.T) {
	a, b := "a", "b"
	got := Join([]Cue{cue(0, 1000, a), cue(1000, 2000, a), cue(1000, 2000, b), cue(2000, 3000, b), cue(2000, 2500, a), cue(4000, 5000, a), cue(4000, 5000, a)})
	want := []Cue{cue(0, 2500, a), cue(1000, 3000, b), cue(4000, 5000, a)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the cues differ (-want +got):\n%s", diff)
	}
}

func TestPackets(t *testing.T) {
	const fields = "7,0,Default,Ann,0,0,0,,"
	ass := func(text string) (Cue, bool) { return ASS(text, ms(1000), ms(2000)) }
	subRip := func(text string) (Cue, bool) { return SubRipPacket(text, ms(1000), ms(2000)) }
	webVTT := func(text string) (Cue, bool) {
		text, addition, _ := strings.Cut(text, "|")
		return WebVTTPacket(text, addition, ms(1000), ms(2000))
	}
	tests := []struct {
		name           string
		read           func(string) (Cue, bool)
		packet         string
		settings, text string // "" = it shows nothing
	}{
		{"ASS", ass, fields + `Hello, you\Nand a < b\hc\nd`, "", "Hello, you\nand a &lt; b\u00a0c d"},
		{"ASS, faces", ass, fields + `{\i1}a{\b1\u1} b{\i0} c{\r}d {\b700}e{\b400}f`, "", "<i>a</i> <b><i><u>b</u></i></b> <b><u>c</u></b>d <b>e</b>f"},
		{"ASS, faces in effects", ass, fields + `{\t(0,100,\i1)\fad(1,2)\pos(1,2)}a{a comment}b{ \i1 }c`, "", "ab<i>c</i>"},
		{"ASS, at the top", ass, fields + `{\an8\i1}a{\an2}b`, "line:0", "<i>ab</i>"},
		{"ASS, at the top left", ass, fields + `{\an7}a`, "line:0 align:left", "a"},
		{"ASS, no place", ass, fields + `{\an0\an12}a`, "", "a"},
		{"ASS, a drawing", ass, fields + `{\p1}m 0 0 l 100 0{\p0}a`, "", "a"},
		{"ASS, only a drawing", ass, fields + `{\p1}m 0 0 l 100 0`, "", ""},
		{"ASS, a brace", ass, fields + `a { b`, "", "a { b"},
		{"ASS, no text", ass, fields, "", ""},
		{"ASS, no fields", ass, "Hello, you", "", ""},
		{"ASS, long", ass, fields + strings.Repeat("a", MaxText+1), "", ""},
		{"SubRip", subRip, "{\\an8}<I>Hello</I>\r\nyou & me\x00\xff", "line:0", "<i>Hello</i>\nyou &amp; me\ufffd\ufffd"},
		{"SubRip, no text", subRip, " \n", "", ""},
		{"WebVTT", webVTT, "<v Ann>a<00:00.500>b<00:01.500>c|line:0 x:y\nid\nNOTE x", "line:0", "<v Ann>a<00:00:01.500>bc</v>"},
		{"WebVTT, no addition", webVTT, "a", "", "a"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, ok := test.read(test.packet)
			if ok != (test.text != "") || got.Settings != test.settings || got.Text != test.text {
				t.Fatalf("got %q, %v, want %q at %q", got, ok, test.text, test.settings)
			}
			if ok {
				checkSame(t, []Cue{got})
			}
		})
	}
	if got, _ := WebVTTPacket("a", "\nid", 0, ms(1)); got.ID != "id" {
		t.Errorf("the identifier is %q", got.ID)
	}
}

func FuzzSamples(f *testing.F) {
	const kinds = 6
	f.Add(uint8(0), tx3g("äb c d", [3]int{0, 1, 1}, [3]int{3, 4, 4}))
	f.Add(uint8(0), tx3g("\xfe\xff\x00a\x30\x42", [3]int{1, 2, 2}))
	f.Add(uint8(1), vttc("iden", "a", "sttg", "line:0", "payl", "<b>a<00:05.000>"))
	f.Add(uint8(2), []byte(document("", "<p begin='1s'>a<span end='9s'>b</span></p>")))
	f.Add(uint8(3), []byte(`1,0,a,b,0,0,0,,{\an8\i1}a\N{\p1}b`))
	f.Add(uint8(4), []byte("{\\an8}<i>a</i>\n&amp;"))
	f.Add(uint8(5), []byte("<v a>b<00:01.000>|line:0\nid"))
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		cues, err := readSample(kind%kinds, data)
		if err != nil && weir.KindOf(err) != weir.Invalid {
			t.Fatalf("the error has another kind: %v", err)
		}
		if len(cues) == 0 {
			return
		}
		if again, err := Read(WebVTT(cues), ""); err != nil || !slices.Equal(again, cues) {
			t.Fatalf("what is written differs when it is read: %v\n%q\n%q", err, cues, again)
		}
		first, ok, err := TX3G(AppendTX3G(nil, cues[0]), 0, ms(10_000))
		if err != nil {
			t.Fatalf("what is written as timed text can't be read: %v", err)
		}
		if again, _, err := TX3G(AppendTX3G(nil, first), 0, ms(10_000)); ok && (err != nil || again != first) {
			t.Fatalf("timed text differs when it is read: %v\n%q\n%q", err, first, again)
		}
	})
}

// readSample reads a sample of one of the kinds.
func readSample(kind uint8, data []byte) ([]Cue, error) {
	const start, end = 0, 10 * time.Second
	var c Cue
	var ok bool
	var err error
	switch kind {
	case 0:
		c, ok, err = TX3G(data, start, end)
	case 1:
		return WVTT(data, start, end)
	case 2:
		return STPP(data, start, end)
	case 3:
		c, ok = ASS(string(data), start, end)
	case 4:
		c, ok = SubRipPacket(string(data), start, end)
	case 5:
		text, addition, _ := strings.Cut(string(data), "|")
		c, ok = WebVTTPacket(text, addition, start, end)
	}
	if !ok {
		return nil, err
	}
	return []Cue{c}, err
}

func TestSequence(t *testing.T) {
	at := func(start, end int, text string) Cue { return Cue{Start: ms(start), End: ms(end), Text: text} }
	exact := func(start, end time.Duration, text string) Cue { return Cue{Start: start, End: end, Text: text} }
	const third = time.Second / 3
	tests := []struct {
		name       string
		cues, want []Cue
	}{
		{"nothing", nil, []Cue{at(0, 9000, "")}},
		{"a cue", []Cue{at(1000, 2000, "a")}, []Cue{at(0, 1000, ""), at(1000, 2000, "a"), at(2000, 9000, "")}},
		{"from the start to after the end", []Cue{at(0, 9500, "a")}, []Cue{at(0, 9000, "a")}},
		{"one after the other", []Cue{at(0, 2000, "a"), at(2000, 9000, "b"), at(9000, 9100, "late")}, []Cue{at(0, 2000, "a"), at(2000, 9000, "b")}},
		{
			"an overlap",
			[]Cue{at(0, 3000, "<i>a</i>"), at(2000, 9000, "b")},
			[]Cue{at(0, 2000, "<i>a</i>"), at(2000, 3000, "<i>a</i>\nb"), at(3000, 9000, "b")},
		},
		{
			"one within another",
			[]Cue{at(0, 9000, "a"), at(2000, 3000, "b"), at(2000, 4000, "c")},
			[]Cue{at(0, 2000, "a"), at(2000, 3000, "a\nb\nc"), at(3000, 4000, "a\nc"), at(4000, 9000, "a")},
		},
		{
			"times between milliseconds",
			[]Cue{exact(third, 2*third, "a"), exact(2*third, 3*third, "b"), exact(3*third, 3*third+time.Microsecond, "c")},
			[]Cue{at(0, 333, ""), at(333, 667, "a"), at(667, 1000, "b"), at(1000, 9000, "")},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Sequence(test.cues, ms(9000))); diff != "" {
				t.Errorf("the cues differ (-want +got):\n%s", diff)
			}
		})
	}
}

// Cues that all overlap do not become far more text than they are.
func TestSequenceIsBounded(t *testing.T) {
	const count = 5000
	var cues []Cue
	for i := range count {
		cues = append(cues, Cue{Start: ms(i), End: ms(10*count - i), Text: "a text"})
	}
	bytes, shown := 0, 0
	for _, c := range Sequence(cues, ms(10*count)) {
		bytes += len(c.Text)
		shown += strings.Count(c.Text+"\n", "text\n")
	}
	if most := 2 * (maxRepeats + 1) * count * len("a text"); bytes > most || shown < maxRepeats*count {
		t.Errorf("%d cues are shown %d times in %d bytes, want at most %d", count, shown, bytes, most)
	}
}
