package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// tally counts the runs of each test, by package and name.
type tally map[string]*runs

type runs struct {
	runs, failures int
	output         []string // of the present run
	reasons        []string // one for each failure
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

// note counts a line of go test -json. A package that fails without a failed test is counted as a
// test with its name: it did not build, or it crashed.
func (t tally) note(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil || e.Package == "" {
		return
	}
	name := strings.TrimPrefix(e.Package, "weir/")
	if e.Test != "" {
		name += " " + e.Test
	}
	r := t[name]
	if r == nil {
		r = &runs{}
		t[name] = r
	}
	switch e.Action {
	case "output":
		r.output = append(r.output, e.Output)
	case "pass", "fail":
		r.runs++
		if e.Action == "fail" {
			r.failures++
			r.reasons = append(r.reasons, reason(r.output))
		}
		r.output = nil
	case "skip":
		r.output = nil
	}
}

// complaint is a line that a test printed by t.Error or t.Fatal, or what ended its process. What
// package harness adds to a failure is none.
var complaint = regexp.MustCompile(`^\s+\w+_test\.go:\d+: |^panic: |DATA RACE|^FAIL.*\[`)

// reason returns the last complaint of a test: the lines that t.Log printed before look the same.
func reason(output []string) string {
	found := ""
	for _, line := range output {
		if complaint.MatchString(line) {
			found = strings.TrimSpace(line)
		}
	}
	const width = 140
	if len(found) > width {
		found = found[:width] + "…"
	}
	return cmp.Or(found, "its subtests, or no reason was printed")
}

func (t tally) failures() (n int) {
	for _, r := range t {
		n += r.failures
	}
	return n
}

// String returns the table: tests that failed first, then all tests with their runs.
func (t tally) String() string {
	names := slices.SortedFunc(maps.Keys(t), func(a, b string) int {
		return cmp.Or(cmp.Compare(t[b].failures, t[a].failures), cmp.Compare(a, b))
	})
	var b strings.Builder
	fmt.Fprintf(&b, "%-70s %5s %8s  %s\n", "test", "runs", "failures", "reason")
	for _, name := range names {
		r := t[name]
		if r.runs == 0 {
			continue
		}
		fmt.Fprintf(&b, "%-70s %5d %8d  %s\n", name, r.runs, r.failures, strings.Join(slices.Compact(r.reasons), "\n"+strings.Repeat(" ", 87)))
	}
	return b.String()
}
