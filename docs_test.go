package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// pages returns the text of every document, by its path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "examples/*.md", "examples/*/*.md"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			all[path] = string(content)
		}
	}
	return all
}

// anchors returns the anchors of the headings of a page.
func anchors(page string) map[string]bool {
	all := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		name := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		all[strings.ReplaceAll(name, " ", "-")] = true
	}
	return all
}

// Links between the documents lead to a file, and to a heading if they name one.
func TestLinks(t *testing.T) {
	all := pages(t)
	link := regexp.MustCompile(`\]\(([^)#]*)(?:#([^)]*))?\)`)
	links := 0
	for path, page := range all {
		for _, match := range link.FindAllStringSubmatch(page, -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			links++
			target := path
			if match[1] != "" {
				target = filepath.Join(filepath.Dir(path), match[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link to %s, which does not exist", path, match[1])
			} else if match[2] != "" && !anchors(all[target])[match[2]] {
				t.Errorf("%s: link to #%s, which is no heading of %s", path, match[2], target)
			}
		}
	}
	if links == 0 {
		t.Error("no link was found; the pattern of this test is wrong")
	}
}

// maxColumns is the width of the documents, outside tables and code.
const maxColumns = 100

func TestColumns(t *testing.T) {
	for path, page := range pages(t) {
		code, n := false, 0
		for line := range strings.Lines(page) {
			n++
			line = strings.TrimSuffix(line, "\n")
			switch {
			case strings.HasPrefix(line, "```"):
				code = !code
			case !code && !strings.HasPrefix(line, "|") && utf8.RuneCountInString(line) > maxColumns:
				t.Errorf("%s:%d: has more than %d columns", path, n, maxColumns)
			}
		}
	}
}

// The index of the manual has every page.
func TestIndex(t *testing.T) {
	all := pages(t)
	for path := range all {
		dir, name := filepath.Split(path)
		if dir == "docs/" && name != "index.md" && !strings.Contains(all["docs/index.md"], "("+name+")") {
			t.Errorf("docs/index.md has no link to %s", name)
		}
	}
}

// The manual has every event and every metric that exists. Those of settings and limits are compared
// by tests of their own.
func TestNamesInManual(t *testing.T) {
	all := pages(t)
	for _, kind := range []struct {
		what, sources, pattern, page string
		least                        int
	}{
		{"event", "internal/weir/event.go", `EventName += "([a-zA-Z.]+)"`, "docs/webhooks.md", 15},
		{"metric", "internal/server/*.go", `"(weir_[a-z_]+)"`, "docs/operations.md", 40},
	} {
		paths, err := filepath.Glob(kind.sources)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, path := range paths {
			code, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			for _, match := range regexp.MustCompile(kind.pattern).FindAllSubmatch(code, -1) {
				names[string(match[1])] = true
			}
		}
		if len(names) < kind.least {
			t.Errorf("only %d names of %ss were found; the pattern of this test is wrong", len(names), kind.what)
		}
		for name := range names {
			if !regexp.MustCompile("`" + regexp.QuoteMeta(name) + "[`{]").MatchString(all[kind.page]) {
				t.Errorf("%s does not have the %s %s", kind.page, kind.what, name)
			}
		}
	}
}
