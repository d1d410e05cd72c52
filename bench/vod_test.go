//go:build bench

package bench

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	vodQuick = flag.Bool("vod-quick", false,
		"a selection that takes less than 10 minutes on 2 cores")
	vodLengths = flag.String("vod-lengths", "",
		"lengths of the films in seconds, up to 30 or multiples of 120; empty = 10,30,120,600, "+
			"and 30,120 on fewer cores and on nodes")
	vodCases = flag.String("vod-cases", "",
		"what to make, of pass4,pass1,all4,all1; empty = all, "+
			"and pass4 on fewer cores and on nodes")
	vodWorkers = flag.String("vod-workers", "",
		"who works: all, a number of cores, or nodes, which are two with a core each; "+
			"empty = all,1,nodes")
	vodRounds = flag.Int("vod-rounds", 0,
		"interleaved measurements, of which the median counts; 0 = 3, and 1 with -vod-quick")
	vodForeign = flag.Float64("vod-foreign", 0.05,
		"share of the machine's CPU time that others may use during a measurement")
	vodFiles = flag.Int("vod-files", -1,
		"short files that are uploaded at once; 0 = leave that out, -1 = 20, and 6 with -vod-quick")
)

// rung is a rendition of a ladder.
type rung struct {
	name          string
	width, height int
	bitrate       int
}

var ladder = []rung{
	{"1080p", 1920, 1080, 6_000_000},
	{"720p", 1280, 720, 3_000_000},
	{"480p", 854, 480, 1_600_000},
	{"360p", 640, 360, 800_000},
}

// vodCase is what both make of a film.
type vodCase struct {
	name   string
	passes bool // the source is the first rendition as it is
	height int  // of the source
	ladder []rung
}

// encoded returns the renditions that are not copied.
func (c vodCase) encoded() []rung {
	if c.passes {
		return c.ladder[1:]
	}
	return c.ladder
}

func vodCaseOf(t *testing.T, name string) vodCase {
	t.Helper()
	all := []vodCase{
		{"pass4", true, 1080, ladder},
		{"pass1", true, 1080, ladder[:2]},
		{"all4", false, 1080, ladder},
		{"all1", false, 1080, ladder[1:2]},
	}
	i := slices.IndexFunc(all, func(c vodCase) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("-vod-cases %s: there is no %q", *vodCases, name)
	}
	return all[i]
}

// workers are the cores that both may use.
type workers struct {
	cores int // 0 = all
	nodes bool
}

func workersOf(t *testing.T, text string) workers {
	t.Helper()
	if text == "nodes" {
		return workers{cores: 2, nodes: true}
	}
	cores, err := strconv.Atoi(text)
	if text != "all" && (err != nil || cores < 1) {
		t.Fatalf("-vod-workers %s: %q is no number of cores", *vodWorkers, text)
	}
	if cores >= numCPU() {
		cores = 0
	}
	return workers{cores: cores}
}

// prefix is what keeps a command on the cores.
func (w workers) prefix() []string {
	if w.cores == 0 || w.cores >= numCPU() {
		return nil
	}
	return []string{"taskset", "-c", fmt.Sprintf("0-%d", w.cores-1)}
}

func (w workers) whole() bool { return w == workers{} }

func (w workers) String() string {
	if w.nodes {
		return "2 nodes"
	}
	if w.cores == 1 {
		return "1 core"
	}
	return fmt.Sprintf("%d cores", cmp.Or(w.cores, numCPU()))
}

// TestVOD measures file transcoding against one plain ffmpeg command that makes the same, in turn
// and on one machine: by the length of the film, with and without the source passing through, with
// one and with four renditions, and by cores and nodes. Then it measures many short files at once.
func TestVOD(t *testing.T) {
	b := newVODBench(t)
	rows := vodRows(t)
	rounds, files := vodRoundsAndFiles()
	for _, r := range rows {
		b.film(t, r.seconds) // before anything is measured
	}
	short := b.shortFiles(t, files)
	var done []*vodRow
	defer func() { report(t, done, rounds) }() // even if what comes after them can't be measured
	for _, r := range rows {
		b.measure(t, r, rounds)
		done = append(done, r)
	}
	if files > 0 {
		done = append(done, b.measureFiles(t, short, rounds))
	}
}

func vodRoundsAndFiles() (rounds, files int) {
	rounds, files = 3, 20
	if *vodQuick {
		rounds, files = 1, 6
	}
	if *vodFiles >= 0 {
		files = *vodFiles
	}
	return cmp.Or(*vodRounds, rounds), files
}

// vodRows returns what the flags select, in the order of the table.
func vodRows(t *testing.T) (rows []*vodRow) {
	t.Helper()
	add := func(w workers, lengths, cases string) {
		for length := range strings.SplitSeq(cmp.Or(*vodLengths, lengths), ",") {
			seconds, err := strconv.Atoi(length)
			if err != nil || seconds < 1 {
				t.Fatalf("-vod-lengths %s: %q is no length", *vodLengths, length)
			}
			for name := range strings.SplitSeq(cmp.Or(*vodCases, cases), ",") {
				c := vodCaseOf(t, name)
				if w.nodes && !c.passes {
					continue // the API has no request that keeps a source from passing through
				}
				rows = append(rows, &vodRow{seconds: seconds, c: c, workers: w})
			}
		}
	}
	const allCases = "pass4,pass1,all4,all1"
	all := "all,1,nodes"
	if *vodQuick {
		all = "all"
	}
	for text := range strings.SplitSeq(cmp.Or(*vodWorkers, all), ",") {
		switch w := workersOf(t, text); {
		case !w.whole():
			add(w, "30,120", "pass4")
		case *vodQuick:
			add(w, "30", allCases)
			if *vodLengths == "" {
				add(w, "10", "pass4,all4")
				add(w, "120", "pass4")
			}
		default:
			add(w, "10,30,120,600", allCases)
		}
	}
	return rows
}

// measure fills a row.
func (b *vodBench) measure(t *testing.T, r *vodRow, rounds int) {
	t.Helper()
	film := b.film(t, r.seconds)
	fmt.Printf("# %s\n", r.name())
	plain := func() measured { return b.runPlain(t, r.c, r.workers, film) }
	weir := func() measured { return b.runWeir(t, r.c, r.workers, film) }
	if r.workers.nodes {
		weir = func() measured { return b.runNodes(t, r.c, film) }
	}
	b.inTurn(t, r, rounds, plain, weir)
	lastPlain, lastWeir := r.plain[rounds-1], r.weir[rounds-1]
	if r.c.passes {
		b.checkPassed(t, film, lastPlain, lastWeir)
	}
	r.quality = b.compare(t, film, r.c, lastPlain, lastWeir)
	for _, d := range r.quality {
		fmt.Printf("# %v\n", d)
	}
	b.remove(t, lastPlain, lastWeir)
}

// inTurn measures both, one after the other, so that a change of the machine hits both. What the
// last round made stays.
func (b *vodBench) inTurn(t *testing.T, r *vodRow, rounds int, plain, weir func() measured) {
	t.Helper()
	for round := range rounds {
		if round > 0 {
			b.remove(t, r.plain[round-1], r.weir[round-1])
		}
		r.plain = append(r.plain, b.quietly(t, fmt.Sprintf("round %d plain", round+1), plain))
		r.weir = append(r.weir, b.quietly(t, fmt.Sprintf("round %d weir", round+1), weir))
	}
}

// measureFiles measures many short files.
func (b *vodBench) measureFiles(t *testing.T, files []string, rounds int) *vodRow {
	t.Helper()
	fmt.Printf("# %d short files at once\n", len(files))
	r := &vodRow{seconds: shortFile, files: len(files), c: vodCaseOf(t, "pass4")}
	b.inTurn(t, r, rounds,
		func() measured { return b.runPlainFiles(t, r.c, files) },
		func() measured { return b.runUploads(t, r.c, files) })
	b.remove(t, r.plain[rounds-1], r.weir[rounds-1])
	return r
}
