package caption

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func cue(start, end int, text string) Cue { return Cue{Start: ms(start), End: ms(end), Text: text} }

func TestTTMLFiles(t *testing.T) {
	placed := func(start, end int, settings, text string) Cue {
		c := cue(start, end, text)
		c.Settings = settings
		return c
	}
	for name, want := range map[string][]Cue{
		"plain": {
			cue(1000, 2500, "Grüße, <i>you &amp; me</i>\nand a &lt; b"), cue(3000, 4500, "one\ntwo"),
			cue(6000, 7200, "<b>bold</b> <b><i><u>all</u></i></b>"),
		},
		"imsc": {
			cue(11_000, 12_000, "<i>italic at the bottom</i>"),
			placed(12_000, 13_000, "line:0 align:right", "<i>at the top,</i> <b><i><u>loud</u></i></b>"),
			placed(13_000, 14_000, "line:0 align:start", "<b>pixels</b>"), placed(14_000, 15_000, "line:0", "<i>cells</i>"),
			placed(15_000, 16_000, "align:end", "<i>all of it</i>"), cue(16_000, 17_000, "<i>漢kan</i>"),
		},
		"frames": {
			cue(1501, 2000, "frames of a clock"), cue(3003, 4004, "frames"), cue(5000, 6250, "ticks"),
		},
		"smpte": {
			cue(10_010, 11_512, "before the first drop"), cue(599_999, 602_001, "after ten minutes"),
		},
		"nested": {
			cue(11_000, 15_000, "as long as the div"), cue(12_000, 15_000, "cut by the div"),
			cue(30_000, 31_000, "first"), cue(31_500, 32_500, "second, after a pause"), cue(32_500, 34_500, "third"),
			cue(50_000, 51_000, "words"), cue(51_000, 52_000, "words that come"),
			cue(52_000, 53_000, "words that come and go"), cue(53_000, 54_000, "words that come"),
			cue(60_000, 61_000, "one"), cue(61_000, 62_000, "two"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			file, err := os.ReadFile("testdata/" + name + ".ttml")
			if err != nil {
				t.Fatal(err)
			}
			got, err := Read(file, "")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the cues differ (-want +got):\n%s", diff)
			}
			checkSame(t, got)
		})
	}
}

// checkSame reports an error if cues are others after they are written and read.
func checkSame(t *testing.T, cues []Cue) {
	t.Helper()
	again, err := Read(WebVTT(cues), "")
	if diff := cmp.Diff(cues, again); err != nil || diff != "" {
		t.Errorf("what is written differs when it is read: %v (-first +again):\n%s", err, diff)
	}
}

// document returns a document with attributes of its first element and of its body.
func document(root, body string) string {
	return `<tt xmlns="http://www.w3.org/ns/ttml" ` + root + "><body>\n" + body + "</body></tt>"
}

func TestTTMLTimes(t *testing.T) {
	for _, test := range []struct {
		root, text string
		want       time.Duration
	}{
		{"", "00:00:01", ms(1000)},
		{"", "1:02:03.25", time.Hour + ms(123_250)},
		{"", "100:00:00.0001", 100 * time.Hour},
		{"", "00:00:01:15", ms(1500)},
		{"", "1.5h", 90 * time.Minute},
		{"", "90m", 90 * time.Minute},
		{"", "12.3456789012345s", ms(12_346)},
		{"", "1500ms", ms(1500)},
		{"", "45f", ms(1500)},
		{"", "3t", ms(3000)},
		{`ttp:frameRate="25"`, "00:00:01:24", ms(1960)},
		{`ttp:frameRate="25"`, "100t", ms(4000)},
		{`ttp:frameRate="25" ttp:subFrameRate="2"`, "00:00:01:24.1", ms(1980)},
		{`ttp:frameRate="25" ttp:subFrameRate="2"`, "100t", ms(2000)},
		{`ttp:frameRate="30" ttp:frameRateMultiplier="1000:1001"`, "300f", ms(10_010)},
		{`ttp:timeBase="smpte" ttp:frameRate="25"`, "01:00:00:05", time.Hour + ms(200)},
		{`ttp:timeBase="smpte" ttp:frameRate="30" ttp:frameRateMultiplier="1000 1001"`, "01:00:00:00", time.Hour + ms(3600)},
		{`ttp:timeBase="smpte" ttp:frameRate="30" ttp:frameRateMultiplier="1000 1001" ttp:dropMode="dropNTSC"`, "01:00:00:00", time.Hour - ms(4)},
	} {
		got, err := Read([]byte(document(`xmlns:ttp="http://www.w3.org/ns/ttml#parameter" `+test.root, `<p begin="`+test.text+`" end="999h">a</p>`)), "")
		if err != nil || got[0].Start != test.want {
			t.Errorf("%s, %s: got %v, %v, want %s", test.root, test.text, got, err, test.want)
		}
	}
}

func TestTTMLText(t *testing.T) {
	tests := []struct{ name, body, want string }{
		{"white space", "<p end='1s'>  a\n\t b<span> c </span> <span>  d</span></p>", "a b c d"},
		{"white space that is kept", "<p end='1s' xml:space='preserve'>a  b\n  c</p>", "a  b\nc"},
		{"white space that is not kept any more", "<p end='1s' xml:space='preserve'>a  b<span xml:space='default'>  c\nd</span></p>", "a  b c d"},
		{"no-break spaces", "<p end='1s'>a&#160; b</p>", "a\u00a0 b"},
		{"breaks", "<p end='1s'><br/>a <br/><br/> b<br/></p>", "a\nb"},
		{"a break in italics", "<p end='1s'><span tts:fontStyle='italic'>a<br/>b</span></p>", "<i>a\nb</i>"},
		{"italics that end before a break", "<p end='1s'><span tts:fontStyle='italic'>a<br/></span>b</p>", "<i>a</i>\nb"},
		{"characters that are markup", "<p end='1s'>&lt;i> &amp;amp; --&gt; <![CDATA[<b>]]></p>", "&lt;i&gt; &amp;amp; --&gt; &lt;b&gt;"},
		{"a comment", "<p end='1s'>a<!-- b -->c</p>", "ac"},
		{"metadata", "<p end='1s'><metadata><desc>x</desc>y</metadata>a</p>", "a"},
		{"what others have added", "<p end='1s'><x:y xmlns:x='x'>x<span>y</span></x:y>a<set begin='0s' end='1s'/></p>", "a"},
		{"text outside of paragraphs", "x<div>y<span end='1s'>z</span><p end='1s'>a</p></div>", "a"},
		{"an unknown style and region", "<p end='1s' style='x' region='y'>a</p>", "a"},
		{"hidden", "<p end='1s'>a<span tts:visibility='hidden'>b</span></p>", "a"},
		{"ruby", "<p end='1s'><span tts:ruby='container'><span tts:ruby='base'>漢</span><span tts:ruby='text'>かん</span></span></p>", "漢かん"},
		{"the end of a div", "<div end='1s'><p>a</p></div>", "a"},
		{"a sequence whose first child takes all of its time", "<div end='1s' timeContainer='seq'><p>a</p><p dur='1s'>b</p></div>", "a"},
		{"an end and a length", "<p end='3s' dur='1s'>a</p>", "a"},
		{"a paragraph without text and end", "<p end='1s'>a</p><p><br/> </p>", "a"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := Read([]byte(document(`xmlns:tts="http://www.w3.org/ns/ttml#styling"`, test.body)), "")
			if diff := cmp.Diff([]Cue{cue(0, 1000, test.want)}, got); err != nil || diff != "" {
				t.Fatalf("%v, the cues differ (-want +got):\n%s", err, diff)
			}
			checkSame(t, got)
		})
	}
}

func TestTTMLCharset(t *testing.T) {
	const head = `<?xml version="1.0" encoding="windows-1252"?>`
	file := []byte(head + document("", "<p end='1s'>Gr\xfc\xdfe</p>"))
	got, err := Read(file, "windows-1252")
	if diff := cmp.Diff([]Cue{cue(0, 1000, "Grüße")}, got); err != nil || diff != "" {
		t.Errorf("%v, the cues differ (-want +got):\n%s", err, diff)
	}
}

func TestTTMLRefuses(t *testing.T) {
	styled := func(styles, body string) string {
		return "<tt><head><styling>" + styles + "</styling></head><body>" + body + "</body></tt>"
	}
	steps := strings.Builder{}
	for i := range 3000 {
		fmt.Fprintf(&steps, "<span begin='%dms' end='9h'>a</span>", i)
	}
	tests := []struct{ name, file, err string }{
		{"HTML", "<html><p>a</p></html>", "line 1: this is neither WebVTT, SubRip (.srt) nor TTML: the first element of TTML is <tt>, not <html>"},
		{"not closed", "<tt>\n<body>", "line 2: the XML is broken: unexpected EOF"},
		{"closed wrongly", "<tt>\n<body></tt>", "line 2: the XML is broken: element <body> closed by </tt>"},
		{"another version", "<?xml version='1.1'?><tt/>", `line 1: the XML is broken: xml: unsupported version "1.1"`},
		{"no text", document("", ""), "the file has no cues with text"},
		{"DOCTYPE", "<?xml version='1.0'?>\n<!DOCTYPE tt [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;&a;'>]>\n<tt/>", "line 2: the file has a <!DOCTYPE>: remove it"},
		{"an entity", document("", "<p end='1s'>a\n&nbsp;</p>"), "line 3: the XML has an invalid character entity &nbsp;: write the character itself"},
		{"an ampersand", document("", "<p end='1s'>a & b</p>"), "line 2: the XML has an invalid character entity & (no semicolon): write the character itself, and &amp; for &"},
		{"deep", document("", strings.Repeat("<div>", maxDepth)), "line 2: more than 32 elements are in each other here"},
		{"deep in what is left out", document("", strings.Repeat("<x>", maxDepth)), "line 2: more than 32 elements are in each other here"},
		{"many", document("", strings.Repeat("<a/>", maxTokens/2)), "line 2: the file has more than 2,000,000 tags"},
		{"no end", document("", "<div>\n<p begin='1s'>a<br/></p></div>"), "line 3: the text of this <p> has no end: give it, or an element around it, an end or a dur"},
		{"a span without an end", document("", "<p>\n<span begin='1s'>a</span></p>"), "line 3: the text of this <span> has no end"},
		{"a time in words", document("", "<p begin='soon' end='1s'>a</p>"), `line 2: begin="soon" is not a time; it should look like 00:01:02.500 or 62.5s, or like 00:01:02:12 with a frame below 30`},
		{"no unit", document("", "<p end='1.5'>a</p>"), `line 2: end="1.5" is not a time`},
		{"minutes over 59", document("", "<p end='00:60:00.000'>a</p>"), `line 2: end="00:60:00.000" is not a time`},
		{"a frame that is none", document("frameRate='25'", "<p dur='00:00:01:25'>a</p>"), "or like 00:01:02:12 with a frame below 25"},
		{"end before begin", document("", "<p\nbegin='2s' end='1s'>a</p>"), "line 2: the <p> ends at 00:00:01.000, which is not after its begin at 00:00:02.000"},
		{"no length", document("", "<div dur='0s'><p>a</p></div>"), "line 2: the <div> ends at 00:00:00.000, which is not after its begin"},
		{"a late begin", document("", "<p begin='1001h' dur='1s'>a</p>"), "line 2: the <p> begins after 1000 hours"},
		{"a late end", document("", "<p end='99999999999h'>a</p>"), "line 2: the cue ends after 1000 hours"},
		{"a long text", document("", "<p end='1s'>\n"+strings.Repeat("a\n", MaxText)+"</p>"), "line 2: the text of the cue is longer than 16 KiB"},
		{"too many cues", document("", strings.Repeat("<p end='1s'>a</p>", MaxCues+1)), "line 2: the file has more than 100,000 cues"},
		{"too many changes", document("", "<p>"+steps.String()+"</p>"), "line 2: too many spans have times of their own: give each text its own <p>"},
		{"text in a sequence", document("", "<p timeContainer='seq' end='1s'>a</p>"), `line 2: this text is in a sequence (timeContainer="seq"), but has no times`},
		{"paragraphs in each other", document("", "<p end='1s'><p>a</p></p>"), "line 2: a <p> is in another <p>"},
		{"times of the day", document("timeBase='clock'", ""), "line 1: the document has times of the day (ttp:timeBase clock)"},
		{"no frame rate", document("frameRate='0'", ""), `line 1: ttp:frameRate="0" is not a whole number above 0`},
		{"a frame rate with a fraction", document("frameRate='29.97'", ""), `line 1: ttp:frameRate="29.97" is not a whole number above 0`},
		{"a multiplier", document("frameRateMultiplier='1001 0'", ""), `line 1: ttp:frameRateMultiplier="1001 0" is not two whole numbers above 0`},
		{"pictures of SMPTE", document("", "<div\nbackgroundImage='#a' begin='1s' end='2s'/>"), "line 2: the subtitles are pictures, which can't become text: send them as text"},
		{"pictures of IMSC", document("", "<div begin='1s' end='2s'>\n<image src='a.png'/></div>"), "line 3: the subtitles are pictures"},
		{"a style of itself", styled("<style id='a' style='b'/><style id='b' style='a'/>", "\n<p style='a' end='1s'>a</p>"), "line 2: the style refers to itself"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Read([]byte(test.file), "")
			checkInvalid(t, err, test.err)
		})
	}
}

// TestTTMLStyles has styles that all refer to all before them, five times: each is resolved once.
func TestTTMLStyles(t *testing.T) {
	var w strings.Builder
	refs := ""
	for i := range 30 {
		id := "s" + strconv.Itoa(i)
		w.WriteString("<style id='" + id + "' style='" + refs + "' fontStyle='italic'/>")
		refs = strings.Repeat(id+" ", 5) + refs
	}
	file := "<tt><head><styling>" + w.String() + "</styling></head><body><p end='1s' style='" + refs + "'>a</p></body></tt>"
	got, err := Read([]byte(file), "")
	if diff := cmp.Diff([]Cue{cue(0, 1000, "<i>a</i>")}, got); err != nil || diff != "" {
		t.Errorf("%v, the cues differ (-want +got):\n%s", err, diff)
	}
}
