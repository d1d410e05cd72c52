package main

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMap checks the table "Where to change what" of ARCHITECTURE.md: every name in backticks is a
// file, a folder, a package, a setting, a make target, or an identifier of a file or package that
// the same row names. So a move or a rename fails here until the table follows.
func TestMap(t *testing.T) {
	m := newCodeMap(t)
	rows := mapRows(readPage(t))
	if len(rows) < 30 {
		t.Fatalf("only %d rows; the pattern of this test is wrong", len(rows))
	}
	subjects := map[string]bool{}
	for _, row := range rows {
		if subjects[row.subject] {
			t.Errorf("%s: stands twice", row.subject)
		}
		subjects[row.subject] = true
		for _, complaint := range m.complaints(row) {
			t.Errorf("%s: %s", row.subject, complaint)
		}
	}
}

// mapRow is a row of the table: what to change, and where.
type mapRow struct{ subject, where string }

func mapRows(page string) (rows []mapRow) {
	_, table, _ := strings.Cut(page, "| to change or add | where |\n|---|---|\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		if !strings.HasPrefix(line, "| ") || len(cells) != 2 {
			break
		}
		rows = append(rows, mapRow{strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1])})
	}
	return rows
}

// codeMap knows what the repository declares.
type codeMap struct {
	byFile    map[string]map[string]bool // identifiers of a Go file: Name, Type.Method, Type.Field
	byPackage map[string]map[string]bool // the same, by the name of the package in mayImport
	settings  string                     // docs/settings.md
	makefile  string
}

func newCodeMap(t *testing.T) codeMap {
	t.Helper()
	m := codeMap{byFile: map[string]map[string]bool{}, byPackage: map[string]map[string]bool{}}
	for _, s := range readSources(t) {
		if s.tree.Name.Name == "main" && s.pkg() != "main" {
			continue
		}
		names := declared(s.tree)
		m.byFile[s.path] = names
		if m.byPackage[s.pkg()] == nil {
			m.byPackage[s.pkg()] = map[string]bool{}
		}
		for name := range names {
			m.byPackage[s.pkg()][name] = true
		}
	}
	for file, text := range map[string]*string{"docs/settings.md": &m.settings, "Makefile": &m.makefile} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		*text = string(content)
	}
	return m
}

// declared returns the identifiers that a file declares at its top level, with the methods and
// fields of its types.
func declared(tree *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, decl := range tree.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names[d.Name.Name] = true
			} else {
				names[receiver(d.Recv.List[0].Type)+"."+d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range s.Names {
						names[name.Name] = true
					}
				case *ast.TypeSpec:
					names[s.Name.Name] = true
					for _, member := range members(s.Type) {
						names[s.Name.Name+"."+member] = true
					}
				}
			}
		}
	}
	return names
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// members returns the fields of a struct or the methods of an interface.
func members(e ast.Expr) (names []string) {
	var list *ast.FieldList
	switch e := e.(type) {
	case *ast.StructType:
		list = e.Fields
	case *ast.InterfaceType:
		list = e.Methods
	default:
		return nil
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			names = append(names, name.Name)
		}
	}
	return names
}

// complaints returns what is named in a row and does not exist.
func (m codeMap) complaints(row mapRow) (all []string) {
	var files, packages []string // that the row names
	var rest []string
	named := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row.where, -1)
	if len(named) == 0 {
		return []string{"names no place"}
	}
	for _, match := range named {
		name := match[1]
		found := pathsOf(name)
		switch {
		case isPackage(name):
			packages = append(packages, name)
		case len(found) > 0:
			files = append(files, found...)
		case strings.HasPrefix(name, "--"):
			if !strings.Contains(m.settings, "`"+name) {
				all = append(all, "there is no setting "+name)
			}
		case strings.HasPrefix(name, "make "):
			if !strings.Contains(m.makefile, "\n"+strings.TrimPrefix(name, "make ")+":") {
				all = append(all, "there is no target of "+name)
			}
		case strings.ContainsAny(name, "/ ") || regexp.MustCompile(`\.(go|md|ya?ml|html|tsx?)$`).MatchString(name):
			all = append(all, "there is no file "+name)
		default:
			rest = append(rest, name)
		}
	}
	for _, name := range rest {
		if !m.knows(name, files, packages) {
			all = append(all, fmt.Sprintf("%s is declared in none of the files and packages of the row", name))
		}
	}
	return all
}

func isPackage(name string) bool {
	_, product := mayImport[name]
	_, test := forTests[name]
	return product || test
}

// pathsOf returns the files that a name stands for, which is relative to the repository or to
// internal/. A word in capitals, such as NAME in docs/NAME.md, stands for any.
func pathsOf(name string) (found []string) {
	if !strings.ContainsAny(name, "./") {
		return nil
	}
	pattern := regexp.MustCompile(`\b[A-Z]+\b|_[A-Z]+\b`).ReplaceAllStringFunc(name, func(word string) string {
		return strings.Repeat("_", strings.Count(word, "_")) + "*"
	})
	if _, err := os.Stat(name); err == nil {
		pattern = name // such as ARCHITECTURE.md
	}
	for _, base := range []string{".", "internal"} {
		paths, err := filepath.Glob(filepath.Join(base, pattern))
		if err == nil {
			found = append(found, paths...)
		}
	}
	return found
}

// knows reports whether a name is declared in one of the files or packages, or, as package.Name, in
// that package. A name of a file that is not Go must be in its text.
func (m codeMap) knows(name string, files, packages []string) bool {
	if pkg, rest, dotted := strings.Cut(name, "."); dotted && m.byPackage[pkg][rest] {
		return true
	}
	word := regexp.MustCompile(`(^|\W)` + regexp.QuoteMeta(name) + `(\W|$)`)
	return slices.ContainsFunc(packages, func(pkg string) bool { return m.byPackage[pkg][name] }) ||
		slices.ContainsFunc(files, func(file string) bool {
			if path.Ext(file) == ".go" {
				return m.byFile[filepath.ToSlash(file)][name]
			}
			text, err := os.ReadFile(file)
			return err == nil && word.Match(text)
		})
}

// Every rule of the map must be seen to fail.
func TestMapIsHeld(t *testing.T) {
	m := newCodeMap(t)
	for _, tt := range []struct{ name, where, want string }{
		{"file", "`arch_test.go`", ""},
		{"file below internal", "`store/store.go`", ""},
		{"no file", "`store/utils.go`", "no file store/utils.go"},
		{"any file of a form", "`docs/NAME.md`", ""},
		{"no file of a form", "`store/nothing_X.go`", "no file store/nothing_X.go"},
		{"package", "`store`", ""},
		{"setting", "`--storage`", ""},
		{"no setting", "`--nothing`", "no setting --nothing"},
		{"target", "`make web`", ""},
		{"no target", "`make nothing`", "no target of make nothing"},
		{"name in the file", "`Store` in `store/store.go`", ""},
		{"name in another file", "`Store` in `store/queue.go`", "Store is declared in none"},
		{"method", "`Store.Nodes` of `store`", ""},
		{"no method", "`Store.Nothing` of `store`", "Store.Nothing is declared in none"},
		{"name of a package", "`store.Open`", ""},
		{"no name of a package", "`store.Nothing`", "store.Nothing is declared in none"},
		{"name without a place", "`Open`", "Open is declared in none"},
		{"word of a text", "`openapi` in `openapi.yaml`", ""},
		{"no word of a text", "`nothing-like-this` in `openapi.yaml`", "nothing-like-this is declared in none"},
		{"no place", "somewhere", "names no place"},
	} {
		t.Run(tt.name, func(t *testing.T) { checkComplaints(t, m.complaints(mapRow{"a change", tt.where}), tt.want) })
	}
}
