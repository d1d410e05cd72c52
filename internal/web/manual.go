package web

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// The manual is the folder docs/ of the repository. Its index.md is the first page, and its lists of
// links, each below a heading, are the sidebar: GitHub shows its readers the same.

// page is a page of the manual or of the reference.
type page struct {
	path        string // below the root of the server, such as docs/live
	title       string
	description string // the first paragraph, as plain text
	body        template.HTML
	contents    []heading // what is on the page
	cards       []group   // of the first page
	calls       []call    // of the reference
	sections    []section // what the search finds
}

// heading is one of the second or third level.
type heading struct {
	ID, Text string
	Level    int
}

// section is a piece of a page that the search finds.
type section struct {
	path    string // with the anchor
	page    string // title of the page
	heading string // "" = the start of the page
	text    string
}

// group is a part of the sidebar.
type group struct {
	Title string
	Links []link
}

type link struct {
	Path, Title string
	Description string // what follows the link in the index
}

// book is the manual or the reference.
type book struct {
	pages  map[string]*page // by path
	groups []group          // the sidebar
}

// reservedNames are names that a page of the manual can't have.
var reservedNames = []string{"api", "search"}

// readManual renders the files of a folder.
func readManual(files fs.FS) (*book, error) {
	names, err := fs.Glob(files, "*.md")
	if err != nil {
		return nil, err
	}
	m := &book{pages: map[string]*page{}}
	for _, file := range names {
		name := strings.TrimSuffix(file, ".md")
		if slices.Contains(reservedNames, name) {
			return nil, fmt.Errorf("docs/%s: the address docs/%s is another page's; rename the file", file, name)
		}
		source, err := fs.ReadFile(files, file)
		if err != nil {
			return nil, err
		}
		made, groups, err := renderPage(name, source)
		if err != nil {
			return nil, fmt.Errorf("docs/%s: %w", file, err)
		}
		m.pages[made.path] = made
		if name == "index" {
			m.groups, made.cards = groups, groups
		}
	}
	if len(m.groups) == 0 {
		return nil, errors.New("docs/index.md has no list of pages")
	}
	return m, nil
}

// manualPath returns the address of a page of the manual, relative to the root of the server.
func manualPath(name string) string {
	if name == "index" {
		return "docs"
	}
	return "docs/" + name
}

// renderPage makes a page of Markdown. The groups are its lists of links, which the body of the index
// does not have: its template shows them.
func renderPage(name string, source []byte) (*page, []group, error) {
	p := &page{path: manualPath(name)}
	doc := markdown.Parser().Parse(text.NewReader(source))
	p.nameHeadings(doc, source)
	if err := relink(doc, p.path); err != nil {
		return nil, nil, err
	}
	p.collect(doc, source)
	if p.title == "" {
		return nil, nil, errors.New("has no heading of the first level")
	}
	groups := readGroups(doc, source)
	if name == "index" {
		cutAfterIntroduction(doc)
	}
	var body bytes.Buffer
	if err := markdown.Renderer().Render(&body, source, doc); err != nil {
		return nil, nil, err
	}
	p.body = template.HTML(body.String())
	return p, groups, nil
}

// markdown is the dialect of GitHub, without raw HTML, and without styles in it, which the policy of
// the pages refuses.
var markdown = goldmark.New(
	goldmark.WithExtensions(
		extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), extension.Strikethrough, extension.TaskList,
	),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(blocks{}, 100))),
)

// inline renders a text of the contract, such as a description.
func inline(source string) template.HTML {
	var out bytes.Buffer
	if err := markdown.Convert([]byte(source), &out); err != nil {
		return template.HTML(template.HTMLEscapeString(source))
	}
	made := strings.TrimSpace(out.String())
	if single := strings.TrimSuffix(strings.TrimPrefix(made, "<p>"), "</p>"); !strings.Contains(single, "<p>") {
		made = single
	}
	return template.HTML(made)
}

// plainText returns the text of a node without its marks.
func plainText(n ast.Node, source []byte) string {
	var out strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // never an error: none is returned
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				out.Write(n.Segment.Value(source))
				if n.SoftLineBreak() || n.HardLineBreak() {
					out.WriteByte(' ')
				}
			}
		case *ast.String:
			if entering {
				out.Write(n.Value)
			}
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			if entering {
				out.Write(n.Lines().Value(source))
			}
		default:
			if !entering && (n.Type() == ast.TypeBlock || n.Kind() == tables.KindTableCell) {
				out.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(out.String()), " ")
}

// anchorOf returns the anchor that GitHub gives a heading.
func anchorOf(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r == ' ':
			return '-'
		}
		return -1
	}, strings.ToLower(heading))
}

// nameHeadings gives each heading an id and collects those for the contents of the page.
func (p *page) nameHeadings(doc ast.Node, source []byte) {
	used := map[string]int{}
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		h, ok := n.(*ast.Heading)
		if !ok {
			continue
		}
		words := plainText(h, source)
		id := anchorOf(words)
		used[id]++
		if n := used[id]; n > 1 {
			id += "-" + strconv.Itoa(n-1)
		}
		h.SetAttributeString("id", []byte(id))
		switch h.Level {
		case 1:
			if p.title == "" {
				p.title = words
			}
		case 2, 3:
			h.SetAttributeString("data-path", []byte(p.path+"#"+id))
			p.contents = append(p.contents, heading{id, words, h.Level})
		}
	}
}

// collect reads the description of a page, and what the search finds.
func (p *page) collect(doc ast.Node, source []byte) {
	at := section{path: p.path, page: p.title}
	var words []string
	endSection := func() {
		at.text = strings.Join(words, " ")
		p.sections = append(p.sections, at)
		words = nil
	}
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok {
			if h.Level > 1 {
				endSection()
				id, _ := h.AttributeString("id")
				name, _ := id.([]byte)
				at = section{path: p.path + "#" + string(name), page: p.title, heading: plainText(h, source)}
			}
			continue
		}
		if p.description == "" && n.Kind() == ast.KindParagraph {
			p.description = plainText(n, source)
		}
		words = append(words, plainText(n, source))
	}
	endSection()
}

// readGroups returns the lists of links of the index, by the headings above them.
func readGroups(doc ast.Node, source []byte) (groups []group) {
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		switch n.(type) {
		case *ast.Heading:
			groups = append(groups, group{Title: plainText(n, source)})
		case *ast.List:
			for item := n.FirstChild(); item != nil && len(groups) > 0; item = item.NextSibling() {
				if l, ok := firstLink(item); ok {
					last := &groups[len(groups)-1]
					words := plainText(l, source)
					about := strings.TrimPrefix(plainText(item, source), words)
					last.Links = append(last.Links, link{string(l.Destination), words, capital(strings.TrimLeft(about, ":– "))})
				}
			}
		}
	}
	return slices.DeleteFunc(groups, func(g group) bool { return len(g.Links) == 0 })
}

// capital returns a text with a capital as its first letter.
func capital(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return text
	}
	return string(unicode.ToUpper(first)) + text[size:]
}

// cutAfterIntroduction removes all from the first heading of the second level on.
func cutAfterIntroduction(doc ast.Node) {
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok && h.Level > 1 {
			for n != nil {
				next := n.NextSibling()
				doc.RemoveChild(doc, n)
				n = next
			}
			return
		}
	}
}

func firstLink(n ast.Node) (found *ast.Link, ok bool) {
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // never an error: none is returned
		if l, is := n.(*ast.Link); is && entering {
			found, ok = l, true
			return ast.WalkStop, nil
		}
		return ast.WalkContinue, nil
	})
	return found, ok
}

// relink turns links between files into addresses relative to the root of the server, which is the
// base of every page. What is not served here becomes plain text.
func relink(doc ast.Node, here string) error {
	var links []*ast.Link
	err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if l, ok := n.(*ast.Link); ok && entering {
			links = append(links, l)
		}
		return ast.WalkContinue, nil
	})
	for _, l := range links {
		destination, ok := addressOf(string(l.Destination), here)
		if ok {
			l.Destination = []byte(destination)
			continue
		}
		parent := l.Parent()
		for child := l.FirstChild(); child != nil; child = l.FirstChild() {
			parent.InsertBefore(parent, l, child)
		}
		parent.RemoveChild(parent, l)
	}
	return err
}

// addressOf returns the address of what a link in docs/ leads to; false = it is not served.
func addressOf(destination, here string) (string, bool) {
	if strings.Contains(destination, "://") || strings.HasPrefix(destination, "mailto:") {
		return destination, true
	}
	file, anchor, found := strings.Cut(destination, "#")
	if found {
		anchor = "#" + anchor
	}
	target := path.Join("docs", file)
	switch {
	case file == "":
		return here + anchor, true
	case target == "openapi.yaml":
		return referencePath + anchor, true
	case path.Dir(target) == "docs" && path.Ext(target) == ".md":
		return manualPath(strings.TrimSuffix(path.Base(target), ".md")) + anchor, true
	}
	return "", false
}

// blocks renders what differs from plain HTML: headings with a link to themselves, code with its
// colors, and tables that a narrow screen can scroll.
type blocks struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (blocks) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindHeading, renderHeading)
	r.Register(ast.KindFencedCodeBlock, renderCode)
	r.Register(ast.KindCodeBlock, renderCode)
	r.Register(tables.KindTable, renderTable)
}

func renderHeading(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	h := n.(*ast.Heading)
	id, _ := h.AttributeString("id")
	address, linked := h.AttributeString("data-path")
	if entering {
		fmt.Fprintf(w, "<h%d", h.Level)
		if id != nil {
			fmt.Fprintf(w, ` id="%s"`, id)
		}
		_ = w.WriteByte('>')
		return ast.WalkContinue, nil
	}
	if linked {
		fmt.Fprintf(w, ` <a class="anchor" href="%s" aria-label="Link to this section">#</a>`, address)
	}
	fmt.Fprintf(w, "</h%d>\n", h.Level)
	return ast.WalkContinue, nil
}

func renderCode(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkSkipChildren, nil
	}
	language := ""
	if fenced, ok := n.(*ast.FencedCodeBlock); ok && fenced.Info != nil {
		// What follows the language is for the tests.
		language, _, _ = strings.Cut(string(fenced.Info.Segment.Value(source)), " ")
	}
	_, _ = w.WriteString(string(codeBlock(language, string(n.Lines().Value(source)))) + "\n")
	return ast.WalkSkipChildren, nil
}

// codeBlock returns code in its colors, in a frame that the script adds a copy button to.
func codeBlock(language, code string) template.HTML {
	return template.HTML(fmt.Sprintf(`<div class="code"><pre tabindex="0"><code data-language="%s">%s</code></pre></div>`,
		template.HTMLEscapeString(language), highlight(language, strings.TrimRight(code, "\n"))))
}

func renderTable(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString(`<div class="table" tabindex="0"><table>` + "\n")
	} else {
		_, _ = w.WriteString("</table></div>\n")
	}
	return ast.WalkContinue, nil
}
