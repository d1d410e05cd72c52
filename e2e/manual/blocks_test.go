package manual

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// block is a fenced block of a page, or the text of a <!-- test … --> comment, which readers do not
// see: shell commands that check what the blocks before it did.
type block struct {
	line     int    // of its first line
	language string // the first word of the info string; "test" for a comment
	text     string

	norun      string // why it is not run
	background bool   // a second terminal: it runs until the page ends
	file       string // it is saved under this name, for later blocks
	until      string // html: what must become true in the browser, in JavaScript
}

// runs reports whether the block is a program.
func (b block) runs() bool { return slices.Contains(programs, b.language) && b.norun == "" }

var (
	programs = []string{"sh", "bash", "js", "ts", "html", "go", "python", "php", "test"}
	data     = []string{"json", "yaml", "nginx", "caddy", "ini", "text"}
	// Programs of systems that the tests do not have: such a block must say why it is not run.
	elsewhere = []string{"tsx", "swift", "kotlin"}
)

// readPage returns the blocks of a page.
func readPage(text string) ([]block, error) {
	var blocks []block
	var open *block
	fence := regexp.MustCompile("^ *```(.*)$")
	for i, line := range strings.Split(text, "\n") {
		found := fence.FindStringSubmatch(line)
		switch {
		case open == nil && found != nil:
			b, err := readInfo(found[1])
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			b.line, open = i+2, &b
		case open == nil && line == "<!-- test":
			open = &block{line: i + 2, language: "test"}
		case open != nil && (open.language != "test" && found != nil || open.language == "test" && line == "-->"):
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	if open != nil {
		return nil, fmt.Errorf("the block of line %d has no end", open.line)
	}
	return blocks, nil
}

// readInfo reads the info string of a block: its language, and then one of norun: REASON,
// background, file=NAME or until: EXPRESSION.
func readInfo(info string) (block, error) {
	language, rest, _ := strings.Cut(strings.TrimSpace(info), " ")
	b := block{language: language}
	rest = strings.TrimSpace(rest)
	reason, norun := strings.CutPrefix(rest, "norun:")
	until, awaits := strings.CutPrefix(rest, "until:")
	file, saved := strings.CutPrefix(rest, "file=")
	switch {
	case rest == "":
	case norun:
		if b.norun = strings.TrimSpace(reason); b.norun == "" {
			return b, errors.New("norun needs a reason")
		}
	case awaits:
		b.until = until
	case saved:
		b.file = file
	case rest == "background":
		b.background = true
	default:
		return b, fmt.Errorf("%q is none of norun: REASON, background, file=NAME, until: EXPRESSION", rest)
	}
	switch {
	case slices.Contains(elsewhere, language) && b.norun == "":
		return b, fmt.Errorf("%s can't be run here; say why with norun: REASON", language)
	case !slices.Contains(slices.Concat(programs, data, elsewhere), language) || language == "test":
		return b, fmt.Errorf("%q is no language that this test knows: %s", language, strings.Join(slices.Concat(programs, data, elsewhere), ", "))
	}
	return b, nil
}

// page is a page of the manual.
type page struct {
	path   string
	blocks []block
}

// readManual returns README.md and the pages of docs/.
func readManual(t *testing.T) []page {
	t.Helper()
	paths, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	var pages []page
	for _, path := range append([]string{"../../README.md"}, paths...) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := readPage(string(text))
		name := strings.TrimPrefix(filepath.ToSlash(path), "../../")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		pages = append(pages, page{name, blocks})
	}
	return pages
}

func TestReadPage(t *testing.T) {
	for text, want := range map[string]string{
		"```sh norun:\nx\n```":    "line 1: norun needs a reason",
		"```cobol\nx\n```":        `line 1: "cobol" is no language`,
		"```\nx\n```":             `line 1: "" is no language`,
		"```sh sometimes\nx\n```": `line 1: "sometimes" is none of`,
		"```swift\nx\n```":        "line 1: swift can't be run here",
		"a\n```sh\nx":             "the block of line 3 has no end",
	} {
		if _, err := readPage(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	blocks, err := readPage("a\n```sh\nx\n```\n<!-- test\ny\n-->\n```js norun: no reason\nz\n```\n")
	if err != nil || len(blocks) != 3 || blocks[0].text != "x\n" || blocks[1].text != "y\n" || blocks[2].norun != "no reason" || blocks[2].runs() {
		t.Errorf("blocks %+v %v", blocks, err)
	}
}
