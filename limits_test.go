package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// docs/limits.md names a constant or a setting for each limit. These tests compare its values with
// the code, and fail if a constant that is named like a limit is not on the page.

// limit is a row of docs/limits.md.
type limit struct {
	line  int
	value string // such as 64 KiB
	where string // a constant (package.name) or a setting (--name)
}

// limitRows returns the rows of the tables in docs/limits.md whose last column names what sets the
// limit.
func limitRows(t *testing.T) []limit {
	t.Helper()
	text, err := os.ReadFile("docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	where := regexp.MustCompile("^`(--[a-z-]+|[a-z0-9]+\\.[A-Za-z]+)`$")
	var rows []limit
	for i, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), "|")
		found := where.FindStringSubmatch(strings.TrimSpace(cells[len(cells)-1]))
		if found == nil || len(cells) < 3 {
			continue
		}
		rows = append(rows, limit{i + 1, strings.TrimSpace(cells[1]), found[1]})
	}
	if len(rows) < 50 {
		t.Fatalf("only %d rows of docs/limits.md name what sets a limit; the pattern of this test is wrong", len(rows))
	}
	return rows
}

func TestLimits(t *testing.T) {
	constants := constantsOf(t)
	settings, err := os.ReadFile("docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, row := range limitRows(t) {
		if known[row.where] {
			t.Errorf("line %d: %s is on the page twice", row.line, row.where)
		}
		known[row.where] = true
		if name, ok := strings.CutPrefix(row.where, "--"); ok {
			// The manual of settings has the default, and another test compares that with the code.
			pattern := regexp.MustCompile("(?m)^\\| `--" + name + "[ `][^|]*\\|[^|]*\\| `?([^|`]*)`? \\|")
			if found := pattern.FindSubmatch(settings); found == nil {
				t.Errorf("line %d: there is no setting %s", row.line, row.where)
			} else if !sameValue(row.value, string(found[1])) {
				t.Errorf("line %d: the default of %s is %s, not %s", row.line, row.where, found[1], row.value)
			}
			continue
		}
		value, ok := constants[row.where]
		if !ok {
			t.Errorf("line %d: there is no constant %s", row.line, row.where)
			continue
		}
		written, err := number(row.value)
		if err != nil {
			t.Errorf("line %d: %v", row.line, err)
		} else if got, _ := constant.Float64Val(constant.ToFloat(value)); got != written {
			t.Errorf("line %d: %s is %s (%v), not %s (%v)", row.line, row.where, value, got, row.value, written)
		}
	}
	checkMetrics(t)
	var missing []string
	for name := range constants {
		_, base, _ := strings.Cut(name, ".")
		if regexp.MustCompile(`^[mM]ax[A-Z]`).MatchString(base) && !known[name] && !slices.Contains(tolerances, name) {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	for _, name := range missing {
		t.Errorf("%s is not in docs/limits.md: enter it, or put it into tolerances if no caller can reach it", name)
	}
	for _, name := range tolerances {
		if _, ok := constants[name]; !ok || known[name] {
			t.Errorf("%s is in tolerances, but is no constant or is in docs/limits.md", name)
		}
	}
}

// checkMetrics checks that the metrics on the page exist.
func checkMetrics(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile("docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob("internal/server/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, file := range sources {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	for _, name := range regexp.MustCompile(`weir_[a-z_]+`).FindAllString(string(page), -1) {
		if !strings.Contains(code.String(), `"`+name+`"`) {
			t.Errorf("docs/limits.md names the metric %s, which does not exist", name)
		}
	}
}

// sameValue reports whether two texts are the same amount: 30 GiB and 30GiB, 10,000 and 10000.
func sameValue(a, b string) bool {
	x, err1 := number(a)
	y, err2 := number(b)
	return err1 == nil && err2 == nil && x == y
}

// number reads an amount, such as 1,000, 64 KiB, 200 Mbit, 30 s or 7 days. Durations are nanoseconds,
// as in the code.
func number(text string) (float64, error) {
	parts := regexp.MustCompile(`^([0-9][0-9,.]*) ?([A-Za-zµ]*)$`).FindStringSubmatch(text)
	if parts == nil {
		return 0, fmt.Errorf("%q is not an amount", text)
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(parts[1], ",", ""), 64)
	units := map[string]float64{
		"": 1, "B": 1, "bytes": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
		"ms": float64(time.Millisecond), "s": float64(time.Second), "min": float64(time.Minute), "m": float64(time.Minute), "h": float64(time.Hour),
		"d": float64(24 * time.Hour), "days": float64(24 * time.Hour), "Mbit": 1e6,
	}
	unit, ok := units[parts[2]]
	if err != nil || !ok {
		return 0, fmt.Errorf("%q is not an amount", text)
	}
	return n * unit, nil
}

// constantsOf returns the numeric constants of all packages below internal, by package.name.
func constantsOf(t *testing.T) map[string]constant.Value {
	t.Helper()
	source := &constantSource{t: t, fset: token.NewFileSet(), checked: map[string]*types.Package{}}
	source.standard = importer.ForCompiler(source.fset, "source", nil)
	found := map[string]constant.Value{}
	err := filepath.WalkDir("internal", func(dir string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		pkg, err := source.Import("weir/" + filepath.ToSlash(dir))
		if err != nil {
			return err
		}
		for _, name := range pkg.Scope().Names() {
			c, ok := pkg.Scope().Lookup(name).(*types.Const)
			if ok && (c.Val().Kind() == constant.Int || c.Val().Kind() == constant.Float) {
				found[path.Base(filepath.ToSlash(dir))+"."+name] = c.Val()
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// constantSource checks the types of packages as far as their constants need it: function bodies and
// other modules are left out.
type constantSource struct {
	t        *testing.T
	fset     *token.FileSet
	standard types.Importer
	checked  map[string]*types.Package
}

// Import is that of a types.Importer.
func (c *constantSource) Import(name string) (*types.Package, error) {
	if pkg := c.checked[name]; pkg != nil {
		return pkg, nil
	}
	if name == "time" || name == "math" {
		return c.standard.Import(name)
	}
	pkg := types.NewPackage(name, path.Base(name))
	pkg.MarkComplete()
	if dir, ours := strings.CutPrefix(name, "weir/"); ours {
		var files []*ast.File
		paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range paths {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(c.fset, file, nil, 0)
			if err != nil {
				return nil, err
			}
			files = append(files, parsed)
		}
		// What other modules define is not known, which constants do not need.
		config := types.Config{Importer: c, IgnoreFuncBodies: true, Error: func(error) {}}
		pkg, _ = config.Check(name, c.fset, files, nil)
	}
	c.checked[name] = pkg
	return pkg, nil
}

// tolerances are constants that are named like limits, but that no caller reaches: sizes of buffers
// and caches of weir's own, deviations of clocks that are corrected, times between attempts.
var tolerances = strings.Fields(`
	access.maxRefresh
	blob.maxPut blob.maxReason blob.maxRetryAfter
	c2pa.maxFragmentBox c2pa.maxFragments c2pa.maxRow
	cli.maxErrorAnswer cli.maxEventLine cli.maxReferences cli.maxUploadFailures
	cmaf.maxTime
	contract.maxExponent
	ffmpeg.maxSpeed ffmpeg.maxTime
	guard.maxIdlePerHost
	ingest.maxApart ingest.maxEarly ingest.maxLate ingest.maxRounded ingest.maxSilence
	ipfs.maxAnswer ipfs.maxIpfsURI
	live.maxApart live.maxAtOnce live.maxAudioPause live.maxAudioStall live.maxAudioWait live.maxBack live.maxBehind
	live.maxBehindClimb live.maxClimbWait live.maxConnections live.maxDrift live.maxDriftApart live.maxEarly live.maxFetches
	live.maxFrame live.maxFrameWait live.maxGap live.maxKeyFrames live.maxLate live.maxLoad live.maxPause live.maxRelease live.maxSilence
	live.maxStarts live.maxSyncs live.maxUnreported live.maxUploadTime live.maxUploads live.maxWaiting
	media.maxRecent media.maxSignature
	mpegts.maxAudioPES mpegts.maxAudioRun mpegts.maxClockGap mpegts.maxComposition mpegts.maxDelay mpegts.maxSilence
	playback.maxAsk playback.maxLoad playback.maxRounding
	push.maxGap push.maxRetry push.maxSilenceBehind
	rtc.maxDrift rtc.maxJump rtc.maxReports rtc.maxStep rtc.maxWait
	rtmp.maxDrain
	srt.maxLinger
	server.maxStamp
	store.maxAttempts store.maxStmts
	ucan.maxAnswerBlocks
	vod.maxCopyDelay vod.maxCores vod.maxDelay vod.maxPartBytes vod.maxParts vod.maxPlaylist vod.maxVerifiedFiles vod.maxVerifiedInit
	weir.maxPullPause weir.maxRecordingDelay
`)
