package caption

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func TestRead(t *testing.T) {
	one := func(text string) []Cue { return []Cue{{Start: ms(1000), End: ms(2500), Text: text}} }
	const vtt, srt = "WEBVTT\n\n00:01.000 --> 00:02.500", "1\n00:00:01,000 --> 00:00:02,500\n"
	tests := []struct {
		name, file string
		want       []Cue
	}{
		{"WebVTT", vtt + "\nHello\n", one("Hello")},
		{"byte order mark", "\ufeff" + vtt + "\nHello", one("Hello")},
		{"CRLF", "WEBVTT\r\n\r\n00:01.000 --> 00:02.500\r\nHello\r\nyou\r\n\r\n", one("Hello\nyou")},
		{"CR", "WEBVTT\r\r00:01.000 --> 00:02.500\rHello\r", one("Hello")},
		{"NUL", vtt + "\nHel\x00lo", one("Hel\ufffdlo")},
		{"header, comments and styles", "WEBVTT - title\nKind: captions\n\nNOTE one\ntwo\n\nSTYLE\n::cue { color: red }\n\nREGION\nid:a\n\n00:01.000 --> 00:02.500\nHello", one("Hello")},
		{"no empty line after the header", vtt[:7] + "00:01.000 --> 00:02.500\nHello", one("Hello")},
		{"identifier", "WEBVTT\n\nintro\n00:01.000 --> 00:02.500\nHello", []Cue{{ID: "intro", Start: ms(1000), End: ms(2500), Text: "Hello"}}},
		{
			"settings", vtt + " align:start  line:10%,end position:5%\tsize:120% region:a vertical:up\nHello",
			[]Cue{{Start: ms(1000), End: ms(2500), Settings: "line:10%,end position:5% align:start", Text: "Hello"}},
		},
		{"tags", vtt + "\n<v.loud Mary & Joe>Hi <i>you</v> <b>and", one("<v.loud Mary &amp; Joe>Hi <i>you</i></v> <b>and</b>")},
		{"tags of HTML", vtt + "\n<script src=x>alert(1)</script><img onerror=a>", one("alert(1)")},
		{"a class that is none", vtt + "\n<c.a\"b.ok>x</c>", one("<c.ok>x</c>")},
		{"what is no tag", vtt + "\na < b, I <3 you -- > & &lt;i&gt;", one("a &lt; b, I &lt;3 you -- &gt; &amp; &lt;i&gt;")},
		{"timestamps", vtt + "\na<00:01.500>b<00:03.000>c", one("a<00:00:01.500>bc")},
		{"a cue without text", vtt + "\n\n00:03.000 --> 00:04.000\n<i> </i>\n\n00:05.000 --> 00:06.000\nlast", []Cue{{Start: ms(5000), End: ms(6000), Text: "last"}}},
		{"order", "WEBVTT\n\n00:03.000 --> 00:04.000\nb\n\n00:01.000 --> 00:02.000\na", []Cue{{Start: ms(1000), End: ms(2000), Text: "a"}, {Start: ms(3000), End: ms(4000), Text: "b"}}},
		{"hours", "WEBVTT\n\n123:00:01.000 --> 123:00:02.000\na", []Cue{{Start: 123*time.Hour + ms(1000), End: 123*time.Hour + ms(2000), Text: "a"}}},

		{"SubRip", srt + "Hello\nyou\n\n2\n00:00:03.000 --> 00:00:04.000\nagain\n", append(one("Hello\nyou"), Cue{Start: ms(3000), End: ms(4000), Text: "again"})},
		{"SubRip without numbers", "00:00:01,000 --> 00:00:02,500\nHello", one("Hello")},
		{"SubRip without empty lines", srt + "Hello\n2\n00:00:03,000 --> 00:00:04,000\nagain", append(one("Hello"), Cue{Start: ms(3000), End: ms(4000), Text: "again"})},
		{"SubRip with empty lines in a cue", srt + "\nHello\n\nyou\n\n\n2\n00:00:03,000 --> 00:00:04,000\nagain", append(one("Hello\nyou"), Cue{Start: ms(3000), End: ms(4000), Text: "again"})},
		{"SubRip, text that is a number", srt + "1984\n", one("1984")},
		{"SubRip with coordinates", "1\n00:00:01,000 --> 00:00:02,500 X1:40 X2:600\nHello", one("Hello")},
		{"SubRip with tags", srt + "<font color=\"#fff\"><I>Hello</I></font> {i}you{/i} <script>x</script>", one("<i>Hello</i> <i>you</i> &lt;script&gt;x&lt;/script&gt;")},
		{"SubRip at the top", srt + `{\an8}{\fad(1,2)}Hello &amp; a < b`, []Cue{{Start: ms(1000), End: ms(2500), Settings: "line:0", Text: "Hello &amp; a &lt; b"}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := Read([]byte(test.file), "")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("the cues differ (-want +got):\n%s", diff)
			}
			again, err := Read(WebVTT(got), "")
			if diff := cmp.Diff(got, again); err != nil || diff != "" {
				t.Errorf("what is written differs when it is read: %v (-first +again):\n%s", err, diff)
			}
		})
	}
}

func TestCharsets(t *testing.T) {
	utf16 := func(text string, order ...int) (file []byte) {
		for _, r := range "\ufeff" + text {
			pair := []byte{byte(r), byte(r >> 8)}
			file = append(file, pair[order[0]], pair[order[1]])
		}
		return file
	}
	const text = "WEBVTT\n\n00:01.000 --> 00:02.000\nGrüße"
	latin := []byte(strings.NewReplacer("ü", "\xfc", "ß", "\xdf").Replace(text))
	tests := []struct {
		name    string
		file    []byte
		charset string
		err     string // a part of it
	}{
		{"UTF-16, little endian", utf16(text, 0, 1), "", ""},
		{"UTF-16, big endian", utf16(text, 1, 0), "", ""},
		{"UTF-16 with a wrong charset", utf16(text, 0, 1), "windows-1252", ""},
		{"Windows-1252", latin, "Windows-1252", ""},
		{"UTF-8 by name", []byte(text), "utf-8", ""},
		{"not named", latin, "", "neither UTF-8 nor UTF-16"},
		{"named UTF-8", latin, "utf8", "neither UTF-8 nor UTF-16"},
		{"unknown", latin, "latin-99", `charset: "latin-99" is not known`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := Read(test.file, test.charset)
			if test.err != "" {
				checkInvalid(t, err, test.err)
				return
			}
			if want := []Cue{{Start: ms(1000), End: ms(2000), Text: "Grüße"}}; err != nil || !slices.Equal(got, want) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func checkInvalid(t *testing.T, err error, part string) {
	t.Helper()
	if weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), part) {
		t.Errorf("got the error %v, want one that says %q", err, part)
	}
}

func TestReadRefuses(t *testing.T) {
	const cue = "\n00:01.000 --> 00:02.000\n"
	tests := []struct{ name, file, err string }{
		{"nothing", "", "is empty"},
		{"blanks", "\n \r\n", "is empty"},
		{"a picture", "\x89PNG\r\n\x1a\n\xff\xfe", "neither UTF-8"},
		{"plain text", "Hello\nyou\n", `line 1: this is neither WebVTT, SubRip (.srt) nor TTML: before the first cue there is "Hello"`},
		{"no cue", "WEBVTT\n\nNOTE nothing\n", "has no cues"},
		{"a word that begins so", "WEBVTTX\n" + cue + "a", "line 1: the first line of WebVTT"},
		{"no milliseconds", "WEBVTT\n\n00:01 --> 00:02.000\na", `line 3: "00:01" is not a time; it should look like 00:01:02.500`},
		{"minutes over 59", "WEBVTT\n\n00:61:00.000 --> 00:62:00.000\na", `line 3: "00:61:00.000" is not a time`},
		{"no end", "WEBVTT\n\n00:01.000 -->\na", `line 3: "" is not a time`},
		{"end before start", "WEBVTT\n" + cue + "a\n\nx\n00:05.000 --> 00:04.000\nb", "line 7: the cue ends at 00:00:04.000, which is not after its start at 00:00:05.000"},
		{"SubRip, end before start", "1\n00:00:05,000 --> 00:00:04,000\nb", "line 2: the cue ends at"},
		{"no length", "WEBVTT\n\n00:05.000 --> 00:05.000\nb", "line 3: the cue ends at"},
		{"too late", "WEBVTT\n\n00:05.000 --> 1000:00:00.001\nb", "line 3: the cue ends after 1000 hours"},
		{"a long text", "WEBVTT\n" + cue + strings.Repeat("abcdefgh\n", 2000), "line 3: the text of the cue is longer than 16 KiB"},
		{"too many", "WEBVTT\n" + strings.Repeat(cue+"a\n", MaxCues+1), "more than 100,000 cues"},
		{"too large", "WEBVTT\n" + strings.Repeat("NOTE\n", MaxFile/5), "larger than 10 MiB"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Read([]byte(test.file), "")
			checkInvalid(t, err, test.err)
		})
	}
}

func TestWrite(t *testing.T) {
	cues := []Cue{
		{ID: "one", Start: ms(1000), End: ms(2500), Settings: "line:0", Text: "<v Ann>Hello <i>you</i> &amp; me</v>"},
		{Start: ms(2000), End: ms(3_723_004), Text: "<ruby>漢<rt>kan</rt></ruby>\n&lt;b&gt;"},
	}
	for _, test := range []struct{ name, got, want string }{
		{"WebVTT", string(WebVTT(cues)), "WEBVTT\n\none\n00:00:01.000 --> 00:00:02.500 line:0\n<v Ann>Hello <i>you</i> &amp; me</v>\n\n" +
			"00:00:02.000 --> 01:02:03.004\n<ruby>漢<rt>kan</rt></ruby>\n&lt;b&gt;\n\n"},
		{"SubRip", string(SubRip(cues)), "1\n00:00:01,000 --> 00:00:02,500\n{\\an8}Hello <i>you</i> & me\n\n2\n00:00:02,000 --> 01:02:03,004\n漢kan\n<b>\n\n"},
		{"transcript", string(Transcript(append(cues, cues[1]))), "Hello you & me\n漢(kan) <b>\n"},
		{"segment", string(Segment(cues, 0, ms(2000), 0, ms(10_000))), "WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:900000,LOCAL:00:00:00.000\n\none\n" +
			"00:00:01.000 --> 00:00:02.500 line:0\n<v Ann>Hello <i>you</i> &amp; me</v>\n\n"},
		{"segment after 26.5 hours", string(Segment(cues, ms(5_000_000), ms(5_010_000), ms(5_000_000), 1<<33*time.Second/90_000+ms(1000))), "WEBVTT\n" +
			"X-TIMESTAMP-MAP=MPEGTS:89999,LOCAL:01:23:20.000\n\n"},
	} {
		if diff := cmp.Diff(test.want, test.got); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestShift(t *testing.T) {
	cues := []Cue{
		{Start: ms(0), End: ms(1000), Text: "before"},
		{Start: ms(500), End: ms(2500), Text: "a<00:00:02.000>b"},
		{Start: ms(3000), End: ms(9000), Text: "c"},
		{Start: ms(4000), End: ms(9000), Text: "after"},
	}
	want := []Cue{{Start: 0, End: ms(1500), Text: "a<00:00:01.000>b"}, {Start: ms(2000), End: ms(3000), Text: "c"}}
	if diff := cmp.Diff(want, Shift(cues, ms(1000), ms(4000))); diff != "" {
		t.Errorf("the cues differ (-want +got):\n%s", diff)
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"WEBVTT\n\n00:01.000 --> 00:02.500 line:0\n<v.a B>c <00:02.000>d</v>", "1\n00:00:01,000 --> 00:00:02,500\n{\\an8}<i>a\n\n2",
		"\xff\xfe1\x00", "WEBVTT\n\na\n00:01.000 --> 00:02.500\n<<i>>&amp;lt;",
	} {
		f.Add([]byte(seed))
	}
	examples, _ := filepath.Glob("testdata/*.ttml")
	for _, name := range examples {
		if text, err := os.ReadFile(name); err == nil {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		cues, err := Read(file, "")
		if err != nil {
			if weir.KindOf(err) != weir.Invalid {
				t.Fatalf("the error has another kind: %v", err)
			}
			return
		}
		written := WebVTT(cues)
		again, err := Read(written, "")
		if err != nil || !slices.Equal(again, cues) {
			t.Fatalf("what is written differs when it is read: %v\n%q\n%q", err, cues, again)
		}
		if _, err := Read(SubRip(cues), ""); err != nil && !strings.Contains(err.Error(), "no cues") && !strings.Contains(err.Error(), "not a time") {
			t.Fatalf("what is written as SubRip can't be read: %v", err)
		}
	})
}
