package web

import (
	"html"
	"regexp"
	"strings"
)

// syntax is what highlight needs to know of a language: the form of its tokens (comment, text, number,
// word, in this order) and its keywords. An address is a token without a color: the script of the pages
// replaces that of the server.
type syntax struct {
	tokens   *regexp.Regexp
	keywords map[string]bool
}

// newSyntax makes the syntax of a language from what starts its comments. They start a line or follow a
// blank, because # and // occur within words and addresses. Only in a shell do quoted texts have
// several lines.
func newSyntax(comment string, shell bool, keywords string) syntax {
	inText := `\n`
	if shell {
		inText = ``
	}
	s := syntax{keywords: map[string]bool{}}
	s.tokens = regexp.MustCompile(`(?m)((?:^|[ \t])` + comment + `.*$)` +
		`|("(?:\\.|[^"\\` + inText + `])*"|'(?:\\.|[^'\\` + inText + `])*'|` + "`[^`]*`" + `)` +
		`|https?://[^\s"'` + "`" + `]+|(\b[0-9][0-9_.]*\b)|(\$?[A-Za-z_][A-Za-z0-9_]*)`)
	for word := range strings.FieldsSeq(keywords) {
		s.keywords[word] = true
	}
	return s
}

var (
	script = newSyntax("//", false, `as async await break case catch class const continue default else export extends false finally for from function
		if import in let new null of return throw true try typeof undefined while`)
	golang = newSyntax("//", false, `break case chan const continue default defer else false for func go if import interface map nil package range
		return select struct switch true type var`)
	python = newSyntax("#", false, `and as async await break class continue def elif else except False finally for from if import in is lambda None
		not or pass raise return True try while with yield`)
	shell = newSyntax("#", true, `case do done elif else esac export fi for function if in then while`)
	php   = newSyntax("//", false, `as case catch class echo else elseif exit false for foreach function if new null return throw true try use while`)
	plain = newSyntax("#", false, `true false null`)
)

// syntaxes are by the names of languages in the info string of fenced blocks.
var syntaxes = map[string]syntax{
	"js": script, "javascript": script, "ts": script, "typescript": script, "jsx": script, "tsx": script,
	"go": golang, "python": python, "py": python, "php": php,
	"sh": shell, "bash": shell, "console": shell, "curl": shell,
	"json": plain, "yaml": plain, "toml": plain, "ini": plain, "nginx": plain, "caddy": plain,
}

// highlight returns code as HTML, with its comments, texts, numbers and keywords marked. A language
// that is not known stays plain.
func highlight(language, code string) string {
	s, ok := syntaxes[language]
	if !ok {
		return html.EscapeString(code)
	}
	var out strings.Builder
	at := 0
	for _, m := range s.tokens.FindAllStringSubmatchIndex(code, -1) {
		token, class := code[m[0]:m[1]], ""
		switch {
		case m[2] >= 0:
			class = "hc"
		case m[4] >= 0:
			class = "hs"
		case m[6] >= 0:
			class = "hn"
		case strings.HasPrefix(token, "$"):
			class = "hv"
		case s.keywords[token]:
			class = "hk"
		default:
			continue
		}
		out.WriteString(html.EscapeString(code[at:m[0]]))
		out.WriteString(`<span class="` + class + `">` + html.EscapeString(token) + `</span>`)
		at = m[1]
	}
	out.WriteString(html.EscapeString(code[at:]))
	return out.String()
}
