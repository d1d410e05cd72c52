package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mayImport says which packages of this module each package under internal, and the root
// package, may import. ARCHITECTURE.md has the same table and a drawing of the packages by floors;
// tests compare all three. The drawing is the order of the packages, and the table is stricter: most
// packages of lower floors are not allowed. A package that is not here yet fails the test; enter it
// when you know why it exists and what it may know.
var mayImport = map[string]string{
	"weir":     "",
	"caption":  "weir",
	"codec":    "weir",
	"config":   "weir",
	"contract": "weir",
	"hls":      "weir",
	"ipld":     "",
	"ucan":     "weir ipld",
	"c2pa":     "weir",
	"guard":    "weir",
	"budget":   "weir",
	"endpoint": "weir",
	"store":    "weir",
	"ffmpeg":   "weir",
	"mpegts":   "weir codec",
	"rtmp":     "weir codec",
	"srt":      "weir codec",
	"cmaf":     "weir codec hls mpegts",
	"account":  "weir endpoint store budget",
	"rtc":      "weir endpoint budget codec cmaf",
	"blob":     "weir guard hls",
	"media":    "weir blob caption cmaf c2pa",
	"ipfs":     "weir endpoint blob guard ipld ucan",
	"publish":  "weir blob caption hls cmaf media c2pa",
	"vod":      "weir blob caption ffmpeg codec hls cmaf media publish",
	"clip":     "weir blob ffmpeg codec cmaf media vod",
	"webhook":  "weir store guard",
	"access":   "weir store guard webhook",
	"view":     "weir store",
	"live":     "weir store blob ffmpeg codec hls cmaf media",
	"push":     "weir store guard live codec cmaf mpegts rtmp srt",
	"ingest":   "weir endpoint budget live codec cmaf hls mpegts rtmp srt rtc guard",
	"playback": "weir endpoint store blob caption hls codec cmaf media live rtc access view",
	"work":     "weir store blob caption media publish vod clip ipfs",
	"api":      "weir endpoint budget contract store blob caption media access account",
	"web":      "weir endpoint store contract",
	"server":   "weir config endpoint ucan c2pa guard budget store ffmpeg account rtc blob ipfs publish vod webhook access live push ingest playback work api web",
	"cli":      "weir config server store account blob ffmpeg guard publish vod clip c2pa webhook",
	"main":     "cli",
}

// forTests are packages that only tests may import, and what they may import.
var forTests = map[string]string{
	"access/accesstest":  "access guard store webhook",
	"blob/s3test":        "wait wait/linetest",
	"c2pa/c2patest":      "c2pa",
	"caption/cea608test": "",
	"media/mediatest":    "weir blob cmaf media",
	"rtc/rtctest":        "wait",
	"store/pgtest":       "wait",
	"store/storetest":    "store/pgtest",
	"wait":               "",
	"wait/linetest":      "",
	"work/worktest":      "weir blob codec cmaf ffmpeg guard media vod",
}

// libraries says which packages may import a library: the longest matching prefix counts.
// "tests" is any file of a test, "all" is every package but weir, which knows the standard
// library alone. A library that is not here fails the test; enter it with the few packages that
// need it.
var libraries = map[string]string{
	"code.dny.dev/ssrf":                     "guard",
	"github.com/Eyevinn/hls-m3u8":           "tests",
	"github.com/Eyevinn/mp4ff":              "codec", // bitstreams
	"github.com/Eyevinn/mp4ff/bits":         "cmaf c2pa",
	"github.com/Eyevinn/mp4ff/mp4":          "cmaf c2pa", // boxes
	"github.com/alecthomas/kong":            "config",
	"github.com/bluenviron/gohlslib":        "tests",
	"github.com/bluenviron/gortmplib":       "tests",
	"github.com/bluenviron/mediacommon":     "codec tests",
	"github.com/chromedp/":                  "tests",
	"github.com/datarhei/gosrt":             "srt",
	"github.com/elastic/go-seccomp-bpf":     "ffmpeg",
	"github.com/cespare/xxhash":             "ipfs",
	"github.com/fxamacker/cbor":             "c2pa",
	"github.com/gabriel-vasile/mimetype":    "ipfs",
	"github.com/goccy/go-yaml":              "config contract",
	"github.com/golang-jwt/jwt":             "account access api",
	"github.com/google/go-cmp":              "tests",
	"github.com/jackc/pgx":                  "store store/pgtest",
	"github.com/landlock-lsm/go-landlock":   "ffmpeg",
	"github.com/minio/minio-go":             "blob",
	"github.com/pion/":                      "rtc rtc/rtctest",
	"github.com/pressly/goose":              "store",
	"github.com/prometheus/":                "server",
	"github.com/riverqueue/river":           "store",
	"github.com/santhosh-tekuri/jsonschema": "contract",
	"github.com/spaolacci/murmur3":          "ipfs",
	"github.com/tus/tusd":                   "api",
	"github.com/veraison/go-cose":           "c2pa",
	"github.com/yuin/goldmark":              "web",
	"go.opentelemetry.io/":                  "server",
	"go.uber.org/goleak":                    "tests",
	"golang.org/x/crypto":                   "store account",
	"golang.org/x/crypto/acme/autocert":     "server",
	"golang.org/x/exp/slog":                 "api", // what tusd logs with
	"golang.org/x/net/dns/dnsmessage":       "guard tests",
	"golang.org/x/sync":                     "all",
	"golang.org/x/sys/unix":                 "server store cli ffmpeg blob media",
	"golang.org/x/text":                     "caption", // charsets
	"golang.org/x/time/rate":                "ingest live srt",
	"google.golang.org/protobuf":            "server", // spans
	"modernc.org/sqlite":                    "store",
	"pgregory.net/rapid":                    "tests",
}

// holdContext are the types that may hold a context in a field, although it should be an argument.
var holdContext = map[string]string{
	"ipfs.fileReader":    "it is an io.Reader",
	"live.aacInput":      "it is an io.Reader",
	"live.opusInput":     "it is an io.Reader",
	"playback.edge":      "it ends requests that several viewers wait for",
	"playback.object":    "it is an io.Reader",
	"store.absence":      "it ends reads that several readers wait for",
	"webhook.dispatcher": "it ends exchanges, which outlive the context of Run",
}

// Folders of programs and tests beside the product: they may import everything.
var around = []string{"bench", "e2e", "examples"}

// maxLines is the number of lines of the longest file that is still easy to read.
const maxLines = 800

// source is a Go file of this module.
type source struct {
	path  string // relative to the module, with slashes
	lines int
	tree  *ast.File
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

// pkg returns the name of the package in the tables: main, or the folder below
// internal, or the folder.
func (s source) pkg() string {
	dir := path.Dir(s.path)
	if dir == "." {
		return "main"
	}
	return strings.TrimPrefix(dir, "internal/")
}

func (s source) internal() bool { return strings.HasPrefix(s.path, "internal/") }

func (s source) around() bool {
	top, _, _ := strings.Cut(s.path, "/")
	return slices.Contains(around, top)
}

func parseSource(t *testing.T, name string, content []byte) source {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), name, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return source{name, bytes.Count(content, []byte("\n")), tree}
}

func TestArchitecture(t *testing.T) {
	floors, all := readFloors(readPage(t))
	for _, complaint := range append(all, complaints(readSources(t), floors)...) {
		t.Error(complaint)
	}
}

// readSources returns every Go file of this module.
func readSources(t *testing.T) (sources []source) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		skip := []string{".git", "node_modules", "testdata", "tools", "weir-data"}
		if err == nil && entry.IsDir() && slices.Contains(skip, entry.Name()) {
			return fs.SkipDir
		}
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".go" {
			return err
		}
		content, err := os.ReadFile(name)
		if err == nil {
			sources = append(sources, parseSource(t, filepath.ToSlash(name), content))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// complaints returns everything that breaks a rule of this file. floors are those of the drawing.
func complaints(sources []source, floors map[string]int) []string {
	var all []string
	documented := map[string]bool{}
	for _, s := range sources {
		complain := func(format string, args ...any) {
			all = append(all, s.path+": "+fmt.Sprintf(format, args...))
		}
		if s.lines > maxLines {
			complain("%d lines; split it: no file has more than %d", s.lines, maxLines)
		}
		// The comment of the files of a test speaks for a folder that has nothing else.
		documented[path.Dir(s.path)] = documented[path.Dir(s.path)] || s.tree.Doc != nil && (!s.test() || s.around())
		checkImports(s, floors, complain)
		checkCalls(s, complain)
		checkFields(s, complain)
	}
	for _, dir := range slices.Sorted(maps.Keys(documented)) {
		if !documented[dir] {
			all = append(all, dir+": no package comment; say what the package is and where to start reading")
		}
	}
	return all
}

func checkImports(s source, floors map[string]int, complain func(string, ...any)) {
	if s.around() {
		return
	}
	allowed, known := mayImport[s.pkg()]
	help, isHelper := forTests[s.pkg()]
	if isHelper {
		allowed = help
	}
	if !known && !isHelper {
		complain("package %s is not in the table of arch_test.go", s.pkg())
		return
	}
	for _, spec := range s.tree.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			complain("%v", err)
			continue
		}
		ours, isOurs := strings.CutPrefix(name, "weir/internal/")
		first, _, _ := strings.Cut(name, "/")
		_, helper := forTests[ours]
		own := isOurs && ours == s.pkg() // a test outside of its package
		switch {
		case isOurs && helper:
			if !s.test() && !slices.Contains(strings.Fields(forTests[s.pkg()]), ours) {
				complain("imports %s, which only tests may", ours)
			}
		case own:
		case isOurs && !slices.Contains(strings.Fields(allowed), ours):
			complain("%s may not import %s", s.pkg(), ours)
		case isOurs && !isHelper && floors[ours] >= floors[s.pkg()]:
			complain("%s is on floor %d and imports %s on floor %d", s.pkg(), floors[s.pkg()], ours, floors[ours])
		case strings.Contains(first, "."):
			if problem := checkLibrary(s, name); problem != "" {
				complain("%s", problem)
			}
		}
	}
}

// checkLibrary returns what is wrong with the import of a library, or nothing.
func checkLibrary(s source, name string) string {
	match := ""
	for prefix := range libraries {
		within := name == prefix || strings.HasPrefix(name, strings.TrimSuffix(prefix, "/")+"/")
		if within && len(prefix) > len(match) {
			match = prefix
		}
	}
	if match == "" {
		return fmt.Sprintf("library %s is not in the table of arch_test.go", name)
	}
	who := strings.Fields(libraries[match])
	_, forTest := forTests[s.pkg()]
	if slices.Contains(who, s.pkg()) || slices.Contains(who, "all") && s.pkg() != "weir" ||
		slices.Contains(who, "tests") && (s.test() || forTest) {
		return ""
	}
	return fmt.Sprintf("%s may not import %s; only %s may", s.pkg(), name, libraries[match])
}

// checkCalls finds calls that hide what a program does from its reader.
func checkCalls(s source, complain func(string, ...any)) {
	program := s.tree.Name.Name == "main"
	ast.Inspect(s.tree, func(node ast.Node) bool {
		if f, ok := node.(*ast.FuncDecl); ok && f.Name.Name == "init" && f.Recv == nil {
			complain("has an init function; let the caller start things")
		}
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		library, ok := selector.X.(*ast.Ident)
		if !ok {
			return true
		}
		call := library.Name + "." + selector.Sel.Name
		switch {
		case !program && !s.test() && (call == "os.Exit" || strings.HasPrefix(call, "log.Fatal") || strings.HasPrefix(call, "log.Panic")):
			complain("calls %s; return an error, only main ends the process", call)
		case s.internal() && !s.test() && (call == "fmt.Print" || call == "fmt.Printf" || call == "fmt.Println"):
			complain("calls %s; log or return it", call)
		case call == "context.TODO":
			complain("calls context.TODO; take a context from the caller")
		}
		return true
	})
}

// checkFields finds contexts in structs. Tables of tests may have some.
func checkFields(s source, complain func(string, ...any)) {
	if s.test() || s.around() {
		return
	}
	owner := "" // the type that is declared
	ast.Inspect(s.tree, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncDecl, *ast.GenDecl:
			owner = ""
		case *ast.TypeSpec:
			owner = s.pkg() + "." + n.Name.Name
		case *ast.StructType:
			for _, field := range n.Fields.List {
				if isContext(field.Type) && holdContext[owner] == "" {
					complain("a struct holds a context; let it be the first argument")
				}
			}
		}
		return true
	})
}

func isContext(e ast.Expr) bool {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	library, ok := selector.X.(*ast.Ident)
	return ok && library.Name == "context" && selector.Sel.Name == "Context"
}

// Every rule must be seen to fail, or nobody would know that it stopped working.
func TestArchitectureIsHeld(t *testing.T) {
	floors, _ := readFloors(readPage(t))
	const doc = "// Package x is documented.\n"
	for _, tt := range []struct {
		name, path, code string
		want             string // "" = no complaint
	}{
		{"allowed import", "internal/store/a.go", doc + `package store; import "weir/internal/weir"`, ""},
		{"own package in test", "internal/store/a_test.go", `package store_test; import "weir/internal/store"`, ""},
		{"forbidden import", "internal/store/a.go", doc + `package store; import "weir/internal/api"`, "store may not import api"},
		{"forbidden import in test", "internal/work/a_test.go", `package work; import "weir/internal/api"`, "work may not import api"},
		{"endpoints do not know one another", "internal/api/a.go", doc + `package api; import "weir/internal/work"`, "api may not import work"},
		{"domain imports nothing", "internal/weir/a.go", doc + `package weir; import "weir/internal/store"`, "weir may not import store"},
		{"domain without libraries", "internal/weir/a.go", doc + `package weir; import "golang.org/x/sync/errgroup"`, "weir may not import golang.org/x/sync/errgroup"},
		{"main imports the commands", "main.go", doc + `package main; import "weir/internal/cli"`, ""},
		{"main imports nothing else", "main.go", doc + `package main; import "weir/internal/config"`, "main may not import config"},
		{"commands without wiring", "internal/cli/a.go", doc + `package cli; import "weir/internal/live"`, "cli may not import live"},
		{"settings know no part", "internal/config/a.go", doc + `package config; import "weir/internal/server"`, "config may not import server"},
		{"unknown package", "internal/utils/a.go", doc + `package utils`, "package utils is not in the table"},
		{"unknown package below a known one", "internal/store/misc/a.go", doc + `package misc`, "package store/misc is not in the table"},
		{"test package in test", "internal/api/a_test.go", `package api; import "weir/internal/store/pgtest"`, ""},
		{"test package in program", "internal/api/a.go", doc + `package api; import "weir/internal/store/pgtest"`, "which only tests may"},
		{"test package in test package", "internal/store/storetest/a.go", doc + `package storetest; import "weir/internal/store/pgtest"`, ""},
		{"driver in store", "internal/store/a.go", doc + `package store; import "github.com/jackc/pgx/v5"`, ""},
		{"driver in api", "internal/api/a.go", doc + `package api; import "github.com/jackc/pgx/v5"`, "api may not import github.com/jackc/pgx/v5; only store store/pgtest may"},
		{"driver in main", "main.go", doc + `package main; import _ "modernc.org/sqlite"`, "main may not import modernc.org/sqlite"},
		{"queue in work", "internal/work/a.go", doc + `package work; import "github.com/riverqueue/river"`, "work may not import github.com/riverqueue/river"},
		{"metrics in main", "main.go", doc + `package main; import "github.com/prometheus/client_golang/prometheus"`, "only server may"},
		{"metrics in api", "internal/api/a.go", doc + `package api; import "github.com/prometheus/client_golang/prometheus"`, "only server may"},
		{"test library in program", "internal/api/a.go", doc + `package api; import "github.com/google/go-cmp/cmp"`, "only tests may"},
		{"longest prefix counts", "internal/account/a.go", doc + `package account; import "golang.org/x/crypto/acme/autocert"`, "only server may"},
		{"library of the longer prefix", "internal/account/a.go", doc + `package account; import "golang.org/x/crypto/argon2"`, ""},
		{"similar name is no prefix", "internal/config/a.go", doc + `package config; import "github.com/alecthomas/kongplete"`, "library github.com/alecthomas/kongplete is not in the table"},
		{"programs around", "bench/api/a.go", doc + `package main; import ("os"; "github.com/jackc/pgx/v5"); func main() { os.Exit(1) }`, ""},
		{"tests around", "e2e/a_test.go", doc + `package e2e; import "weir/internal/store/pgtest"`, ""},
		{"no package comment", "internal/store/a.go", `package store`, "internal/store: no package comment"},
		{"long file", "internal/store/a.go", doc + "package store" + strings.Repeat("\n", maxLines), "801 lines; split it"},
		{"init", "internal/store/a.go", doc + `package store; func init() {}`, "init function"},
		{"method named init", "internal/store/a.go", doc + `package store; func (s *Store) init() {}`, ""},
		{"exit", "internal/store/a.go", doc + `package store; import "os"; func f() { os.Exit(1) }`, "calls os.Exit"},
		{"exit in main", "main.go", doc + `package main; import "os"; func main() { os.Exit(1) }`, ""},
		{"fatal", "internal/store/a.go", doc + `package store; import "log"; func f() { log.Fatalf("x") }`, "calls log.Fatalf"},
		{"print", "internal/store/a.go", doc + `package store; import "fmt"; func f() { fmt.Println(1) }`, "calls fmt.Println"},
		{"print to a writer", "internal/store/a.go", doc + `package store; import "fmt"; func f(w io.Writer) { fmt.Fprintln(w, 1) }`, ""},
		{"context in a struct", "internal/store/a.go", doc + `package store; type s struct { ctx, other context.Context }`, "holds a context"},
		{"context in a struct without a name", "internal/store/a.go", doc + `package store; var s struct { context.Context }`, "holds a context"},
		{"context in a reader", "internal/live/a.go", doc + `package live; type opusInput struct { ctx context.Context }`, ""},
		{"context of a function in a struct", "internal/store/a.go", doc + `package store; type s struct { do func(context.Context) error }`, ""},
		{"todo context", "main.go", doc + `package main; var c = context.TODO()`, "calls context.TODO"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sources := []source{parseSource(t, tt.path, []byte(tt.code))}
			if sources[0].test() {
				sources = append(sources, parseSource(t, path.Dir(tt.path)+"/doc.go", []byte(doc+"package x")))
			}
			checkComplaints(t, complaints(sources, floors), tt.want)
		})
	}
}

// checkComplaints fails unless there is one complaint with the words want, or none if want is "".
func checkComplaints(t *testing.T, got []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(got) > 0:
		t.Errorf("complaints %q, want none", got)
	case want != "" && (len(got) != 1 || !strings.Contains(got[0], want)):
		t.Errorf("complaints %q, want one with %q", got, want)
	}
}

func readPage(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// readFloors returns the floor of each package in the drawing of ARCHITECTURE.md, and complaints
// about packages of the table that are not on exactly one floor. A line of the drawing has a floor,
// its packages and a remark.
func readFloors(page string) (floors map[string]int, complaints []string) {
	_, drawing, _ := strings.Cut(page, "```\nfloor")
	drawing, _, _ = strings.Cut(drawing, "```")
	floors = map[string]int{}
	for line := range strings.Lines(drawing) {
		columns := strings.Split(line, "│")
		floor, err := strconv.Atoi(strings.TrimSpace(columns[0]))
		if err != nil || len(columns) != 3 {
			continue
		}
		for _, pkg := range strings.Fields(columns[1]) {
			if _, twice := floors[pkg]; twice {
				complaints = append(complaints, "drawing of ARCHITECTURE.md: has "+pkg+" twice")
			}
			if _, known := mayImport[pkg]; !known {
				complaints = append(complaints, "drawing of ARCHITECTURE.md: has "+pkg+", which is not in the table")
			}
			floors[pkg] = floor
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(mayImport)) {
		if _, drawn := floors[pkg]; !drawn {
			complaints = append(complaints, "drawing of ARCHITECTURE.md: does not have "+pkg)
		}
	}
	return floors, complaints
}

// A drawing that does not fit the code fails.
func TestDrawingIsHeld(t *testing.T) {
	page := readPage(t)
	for _, tt := range []struct {
		name, old, new string
		want           string // "" = no complaint
	}{
		{"as it is", "", "", ""},
		{"missing package", "│ live  publish", "│ publish", "does not have live"},
		{"package on two floors", "│ live  publish", "│ live  publish  store", "has store twice"},
		{"unknown package", "│ live  publish", "│ live  publish  utils", "has utils, which is not in the table"},
		{"import of a higher floor", "  0   │ weir", "  2   │ weir", "store is on floor 1 and imports weir on floor 2"},
		{"import of the same floor", "  0   │ weir", "  1   │ weir", "store is on floor 1 and imports weir on floor 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code := "// Package store is documented.\npackage store; import \"weir/internal/weir\""
			floors, got := readFloors(strings.Replace(page, tt.old, tt.new, 1))
			got = append(got, complaints([]source{parseSource(t, "internal/store/a.go", []byte(code))}, floors)...)
			checkComplaints(t, got, tt.want)
		})
	}
}

// The table in ARCHITECTURE.md is the table above.
func TestArchitectureIsDocumented(t *testing.T) {
	name := regexp.MustCompile("`([a-z0-9/]+)`")
	names := func(cell string) (found []string) {
		for _, match := range name.FindAllStringSubmatch(cell, -1) {
			found = append(found, match[1])
		}
		return found
	}
	_, table, found := strings.Cut(readPage(t), "| package | may import |\n|---|---|\n")
	if !found {
		t.Fatal("ARCHITECTURE.md has no table of packages")
	}
	documented := map[string]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			break
		}
		for _, pkg := range names(cells[1]) {
			documented[pkg] = strings.Join(names(cells[2]), " ")
		}
	}
	want := maps.Clone(mayImport)
	maps.Copy(want, forTests)
	if diff := cmp.Diff(want, documented); diff != "" {
		t.Errorf("ARCHITECTURE.md differs from this test (-test +page):\n%s", diff)
	}
}
