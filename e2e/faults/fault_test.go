package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/e2e/harness"
	"weir/internal/wait"
)

// fault is something that fails, and is mended.
type fault struct {
	name   string
	do     func(r *rig)
	killed int   // the number of a node that does not come back; 0 = all do
	strict bool  // nobody may notice
	at     []int // where viewers are who stay at one node

	noFilms bool // what is stored can't be had
}

// everywhere are all nodes, others those that do not fail.
var everywhere, others = []int{0, 1, 2}, []int{1, 2}

// awayFor is how long the database is away.
const awayFor = 7 * time.Minute

// allFaults are the faults, those of the database first.
func allFaults() []fault {
	return []fault{
		{name: "database: primary left read-only", strict: true, at: everywhere, do: func(r *rig) {
			r.pair.Demote()
			r.pair.Standby.Promote(r.t)
		}},
		{name: "database: crash, promote", strict: true, at: everywhere, do: func(r *rig) {
			r.pair.Primary.Crash(r.t)
			r.hold(8 * time.Second)
			r.pair.Standby.Promote(r.t)
		}},
		{name: "database: frozen 30 s", strict: true, at: everywhere, do: func(r *rig) {
			r.pair.Primary.Freeze(r.t)
			r.hold(30 * time.Second)
			r.pair.Primary.Thaw(r.t)
		}},
		{name: "database: 2 s late", strict: true, at: everywhere, do: func(r *rig) {
			for _, n := range r.nodes {
				n.database[0].delay(2000)
			}
			r.hold(40 * time.Second)
			for _, n := range r.nodes {
				n.database[0].heal("delay", back)
			}
		}},
		{name: "database: away 40 s", strict: true, at: everywhere, do: func(r *rig) { r.away(40 * time.Second) }},
		{name: "database: away 7 min", strict: true, at: everywhere, do: func(r *rig) { r.away(awayFor) }},
		{name: "node: kill -9", killed: 1, at: others, do: func(r *rig) {
			r.nodes[0].Kill()
			r.hold(5 * time.Second)
		}},
		{name: "node: stopped 20 s", at: others, do: func(r *rig) { r.suspend(20*time.Second, 0) }},
		{name: "node: stopped 60 s", at: others, do: func(r *rig) { r.suspend(60*time.Second, 10*time.Second) }},
		{name: "node: cut off from database", at: everywhere, do: func(r *rig) {
			r.nodes[0].cutDatabase()
			r.hold(40 * time.Second)
			r.nodes[0].mendDatabase()
		}},
		{name: "node: hears nothing from database", at: everywhere, do: func(r *rig) {
			for _, l := range r.nodes[0].database {
				l.swallow(back)
			}
			r.hold(30 * time.Second)
			for _, l := range r.nodes[0].database {
				l.heal("swallow", back)
			}
		}},
		{name: "node: cut off from bucket", strict: true, noFilms: true, at: everywhere, do: func(r *rig) {
			r.nodes[0].bucket.swallow(there, back)
			r.hold(40 * time.Second)
			r.nodes[0].bucket.heal("swallow", there, back)
		}},
		{name: "node: cut off from nodes", at: everywhere, do: func(r *rig) {
			r.nodes[0].inbound.swallow(there, back)
			r.hold(30 * time.Second)
			r.nodes[0].inbound.heal("swallow", there, back)
		}},
	}
}

// hold lets a fault last.
func (r *rig) hold(d time.Duration) {
	r.t.Helper()
	began := time.Now()
	harness.Eventually(r.t, func() error {
		if since := time.Since(began); since < d {
			return fmt.Errorf("it has lasted %v of %v", since, d)
		}
		return nil
	})
}

// away takes both databases away.
func (r *rig) away(d time.Duration) {
	r.t.Helper()
	r.pair.Primary.Crash(r.t)
	r.pair.Standby.Crash(r.t)
	for ; d > time.Minute; d -= time.Minute {
		r.hold(time.Minute)
	}
	r.hold(d)
	r.pair.Primary.Start(r.t)
	r.pair.Standby.Start(r.t)
}

// suspend stops the first node. If leave is not 0, its encoder goes to another one after that time.
func (r *rig) suspend(d, leave time.Duration) {
	r.t.Helper()
	pid := r.nodes[0].Cmd.Process.Pid
	harness.Suspend(r.t, pid)
	if leave > 0 {
		r.hold(leave)
		r.streams[0].encoder.leave()
	}
	r.hold(d - leave)
	harness.Resume(r.t, pid)
}

// check fails the test for what must not be.
func (p *report) check(t *testing.T, f fault) {
	t.Helper()
	none := func(what string, list []string) {
		if len(list) > 0 {
			t.Errorf("%s: %s: %s", f.name, what, strings.Join(list[:min(len(list), 8)], "; "))
		}
	}
	none("failed", p.failures)
	none("names that were used again with other bytes", p.names)
	none("went back", p.fell)
	none("goroutines that are gone", p.gone)
	none("access", p.access)
	if p.wrong > 0 {
		t.Errorf("%s: %d frames are twice or in the wrong order in the recordings", f.name, p.wrong)
	}
	if !f.strict {
		return
	}
	none("responses", p.complaints)
	none("false events", p.events)
	none("nodes that were declared dead", p.dead)
	none("taken over", p.taken)
	if p.failed > 0 || p.none > 0 {
		t.Errorf("%s: viewers got %s, new ones %s, those of films %s, and %d found no node", f.name, p.in, p.new, p.films, p.none)
	}
	const held = 5 // frames of a stream that ffmpeg counts and keeps for the audio beside them
	if p.lost > 0 || p.ends > 2*held {
		t.Errorf("%s: %d frames are missing in the middle of the recordings, %d at the end", f.name, p.lost, p.ends)
	}
}

// columns are those of the table.
var columns = []string{
	"fault", "5xx in", "5xx new", "5xx films", "404 in", "no node", "false events", "dead", "taken over", "access", "API writes after", "writes refused", "loops gone",
	"hls.js stands", "viewers stand", "frames unseen", "missing in recordings", "names reused", "went back", "failed",
}

func (p *report) row() []string {
	count := func(list []string) string { return fmt.Sprint(len(list)) }
	page := "-"
	if p.page > 0 {
		page = fmt.Sprintf("%.1f s", p.page.Seconds())
	}
	return []string{
		p.fault, p.in, p.new, p.films, fmt.Sprint(p.missing), fmt.Sprint(p.none), count(p.events), strings.Join(p.dead, " "), strings.Join(p.taken, " "), count(p.access), p.writes, p.refused,
		count(p.gone), page, fmt.Sprintf("%.1f s", p.still.Seconds()), fmt.Sprint(p.unseen), fmt.Sprintf("%d, %d at ends, %d wrong", p.lost, p.ends, p.wrong),
		count(p.names), count(p.fell), count(p.failures),
	}
}

// details tells what is behind the numbers.
func (p *report) details() string {
	var b strings.Builder
	for _, of := range []struct {
		what string
		list []string
	}{
		{"responses", p.complaints},
		{"false events", p.events},
		{"access", p.access},
		{"loops gone", p.gone},
		{"names", p.names},
		{"went back", p.fell},
		{"failed", p.failures},
	} {
		for _, line := range of.list[:min(len(of.list), 8)] {
			fmt.Fprintf(&b, "  %s: %s\n", of.what, line)
		}
	}
	return b.String()
}

// table is one column for each fault: there are more things to see than faults.
func table(rows [][]string) string {
	var b strings.Builder
	for i, name := range columns {
		fmt.Fprintf(&b, "%-22s", name)
		for _, row := range rows {
			width := max(14, len(slices.MaxFunc(row, func(a, b string) int { return len(a) - len(b) })))
			fmt.Fprintf(&b, " │ %-*s", width, row[i])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// try lets faults happen one after the other on a rig of their own, and prints what came of them. What
// recordings miss and which names were used twice counts for the last one.
func try(t *testing.T, binary string, browser bool, turns, limit time.Duration, faults ...fault) (rows [][]string) {
	t.Helper()
	last := faults[len(faults)-1]
	r := newRig(t, binary, browser, turns, limit, last.at)
	for what, took := range r.access.revoked {
		t.Logf("with everything well, what is %s plays for another %.1f s", what, took.Seconds())
	}
	for i, f := range faults {
		p := r.fail(f)
		if i == len(faults)-1 {
			r.finish(&p)
		}
		t.Logf("%s\n%s%s", f.name, table([][]string{p.row()}), p.details())
		p.check(t, f)
		rows = append(rows, p.row())
	}
	return rows
}

// TestFaults lets the database and then a node fail, shortly.
func TestFaults(t *testing.T) {
	all := map[string]fault{}
	for _, f := range allFaults() {
		all[f.name] = f
	}
	short := func(names ...string) (list []fault) {
		for _, name := range names {
			f := all[name]
			if f.do == nil {
				t.Fatalf("there is no fault %q", name)
			}
			list = append(list, f)
		}
		return list
	}
	t.Run("demoted", func(t *testing.T) {
		t.Parallel()
		try(t, "", false, 2*time.Second, wait.Limit, short("database: primary left read-only")...)
	})
	t.Run("crashed", func(t *testing.T) {
		t.Parallel()
		try(t, "", false, 2*time.Second, wait.Limit, short("database: crash, promote", "node: kill -9")...)
	})
}
