//go:build bench

package bench

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/wait"
)

var (
	liveStreams = flag.String("live-streams", "1,50,100", "numbers of streams to measure with")
	liveRuns    = flag.Int("live-runs", 5, "measurements of each server, of which the median counts")
	liveSeconds = flag.Int("live-seconds", 12, "length of the measurements of CPU time and of latency, each")
	liveSettle  = flag.Duration("live-settle", 6*time.Second, "how long the streams run before")
	liveForeign = flag.Float64("live-foreign", 0.05, "share of the machine's CPU time that others may use during a measurement")
	liveFPS     = flag.Int("live-fps", 30, "frames a second of the streams")
	liveBFrames = flag.Int("live-bframes", 2, "B-frames between the others, at most")
	liveOnly    = flag.String("live-only", "", "measure only these servers, of bare,weir,weir rec,mediamtx,mediamtx rec")
	liveProfile = flag.String("live-profile", "", "write profiles of weir into this folder")
)

// What is promised: seconds, megabytes, and ratios to the bare server and to MediaMTX.
const (
	maxFirst     = 2.3
	maxP95       = 0.234
	maxMemory    = 6.0
	maxCPU       = 1.6
	maxCPURecord = 2.8
	atStreams    = 100 // memory and CPU time are promised for so many

	peerFirst, peerP95, peerMemory = 0.58, 1.0, 0.29
)

// TestLive measures live streams that pass through, 1080p at 30 frames a second and 5
// Mbit/s, with and without recording, beside a bare server that only takes RTMP apart,
// and beside MediaMTX if its binary is named.
//
// This process sends the streams and watches one of them; the server is a process of
// its own.
func TestLive(t *testing.T) {
	if addr := os.Getenv(demuxAddr); addr != "" {
		serveDemux(addr)
	}
	vod := newVODBench(t)
	b := &liveBench{out: vod.out, weir: vod.weir, peer: os.Getenv("MEDIAMTX"), film: vod.liveFilm(t), results: map[liveCase][]liveResult{}}
	servers := []string{bareServerName, weirName, weirRecName}
	if b.peer != "" {
		servers = append(servers, peerName, peerRecName)
	}
	var numbers []int
	for text := range strings.SplitSeq(*liveStreams, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("-live-streams %s: %q is no number of streams", *liveStreams, text)
		}
		numbers = append(numbers, n)
	}
	for run := range *liveRuns {
		for _, n := range numbers {
			for _, name := range servers {
				if *liveOnly != "" && !slices.Contains(strings.Split(*liveOnly, ","), name) {
					continue
				}
				r := b.quietly(t, liveCase{name, n})
				fmt.Printf("run %d  %s\n", run+1, b.line(liveCase{name, n}, r))
			}
		}
	}
	fmt.Println("\nmedians")
	for _, n := range numbers {
		for _, name := range servers {
			if len(b.results[liveCase{name, n}]) > 0 {
				fmt.Println(b.line(liveCase{name, n}, b.median(liveCase{name, n})))
			}
		}
	}
	for _, n := range numbers {
		b.verdict(t, n)
	}
}

// liveBench has what the measurements need, and what came of them.
type liveBench struct {
	out     string
	weir    string // the binary
	peer    string // that of MediaMTX; "" = it is not measured
	film    *film
	results map[liveCase][]liveResult
}

// liveCase is a server with a number of streams.
type liveCase struct {
	server  string
	streams int
}

func (c liveCase) String() string { return fmt.Sprintf("%3d × %-12s", c.streams, c.server) }

// liveResult is one measurement.
type liveResult struct {
	cpu       float64 // share of a core, per stream
	memory    float64 // megabytes over those of the idle server, per stream
	first     float64 // seconds from the first byte until a player can begin
	p50, p95  float64 // seconds from the publisher to the player, of each frame
	segments  float64 // Gbit a second
	playlists float64 // a second
	foreign   float64 // share of the machine's CPU time that others used
	late      float64 // messages that were not sent in time
}

func (b *liveBench) median(c liveCase) liveResult {
	of := func(value func(liveResult) float64) float64 { return median(b.results[c], value) }
	return liveResult{
		cpu:       of(func(r liveResult) float64 { return r.cpu }),
		memory:    of(func(r liveResult) float64 { return r.memory }),
		first:     of(func(r liveResult) float64 { return r.first }),
		p50:       of(func(r liveResult) float64 { return r.p50 }),
		p95:       of(func(r liveResult) float64 { return r.p95 }),
		segments:  of(func(r liveResult) float64 { return r.segments }),
		playlists: of(func(r liveResult) float64 { return r.playlists }),
		foreign:   of(func(r liveResult) float64 { return r.foreign }),
		late:      of(func(r liveResult) float64 { return r.late }),
	}
}

// line says what was measured.
func (b *liveBench) line(c liveCase, r liveResult) string {
	text := fmt.Sprintf("%v per stream: CPU %.3f %% of a core", c, 100*r.cpu)
	if bare := b.median(liveCase{bareServerName, c.streams}); bare.cpu > 0 && c.server != bareServerName {
		text += fmt.Sprintf(" (%.2f of bare)", r.cpu/bare.cpu)
	}
	text += fmt.Sprintf(", memory %.2f MB", r.memory)
	if r.first > 0 {
		text += fmt.Sprintf("; first playable %.2f s; delivery p50 %.0f ms, p95 %.0f ms; segments %.1f Gbit/s, playlists %.0f/s",
			r.first, 1000*r.p50, 1000*r.p95, r.segments, r.playlists)
	}
	text += fmt.Sprintf("; others %.1f %%", 100*r.foreign)
	if r.late > 0 {
		text += fmt.Sprintf("; %.0f messages sent late", r.late)
	}
	return text
}

// quietly measures until others leave the machine alone.
func (b *liveBench) quietly(t *testing.T, c liveCase) liveResult {
	t.Helper()
	for try := 1; ; try++ {
		r := b.measure(t, c)
		if r.foreign <= *liveForeign {
			b.results[c] = append(b.results[c], r)
			return r
		}
		fmt.Printf("       %v others used %.1f %% of the CPU, once more\n", c, 100*r.foreign)
		if try == 12 {
			t.Fatalf("others use too much of this machine")
		}
		if err := sleep(t.Context(), 10*time.Second); err != nil { // what was written may still be on its way to the disk
			t.Fatal(err)
		}
	}
}

// measure starts a server, sends it streams, and looks.
func (b *liveBench) measure(t *testing.T, c liveCase) (r liveResult) {
	t.Helper()
	s := b.start(t, c.server, c.streams)
	defer s.end(t)
	wait := func(d time.Duration) {
		if err := sleep(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	wait(2 * time.Second)
	idle := s.megabytes()
	l := &publishers{film: b.film}
	defer l.group.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	last := len(s.streams) - 1
	for _, stream := range s.streams[:last] {
		l.publish(ctx, t, stream)
		wait(2 * time.Second / time.Duration(last)) // so that key frames don't come all at once
	}
	var w *watcher
	if s.streams[last].playlist == "" {
		l.publish(ctx, t, s.streams[last])
	} else {
		w = b.watch(ctx, t, l, s.streams[last], &r)
		defer w.close()
	}
	wait(*liveSettle)

	foreign := startForeign(t, s.cpuSeconds)
	before, start := s.cpuSeconds(t), time.Now()
	profiled := b.profile(t, s, c)
	used := idle
	for range *liveSeconds {
		wait(time.Second)
		used = max(used, s.megabytes())
	}
	n := float64(c.streams)
	r.cpu, r.memory = (s.cpuSeconds(t)-before)/time.Since(start).Seconds()/n, (used-idle)/n
	<-profiled
	if w != nil {
		b.follow(t, w, &r)
	}
	r.foreign, r.late = foreign(), float64(l.late.Load())
	l.check(t)
	if w != nil && !strings.HasPrefix(c.server, peerName) { // it redirects clients that have no session
		b.throughput(t, w, &r)
	}
	return r
}

// watch begins to send a stream, and measures how soon it can be watched.
func (b *liveBench) watch(ctx context.Context, t *testing.T, l *publishers, stream broadcast, r *liveResult) *watcher {
	t.Helper()
	w, err := newWatcher(stream.playlist)
	if err != nil {
		t.Fatal(err)
	}
	began := l.publish(ctx, t, stream)
	ctx, cancel := context.WithTimeout(ctx, wait.Limit)
	defer cancel()
	playable, err := w.first(ctx)
	if err != nil {
		t.Fatalf("the stream could not be watched: %v", err)
	}
	r.first = playable.Sub(began).Seconds()
	return w
}

// follow measures how long frames are under way.
func (b *liveBench) follow(t *testing.T, w *watcher, r *liveResult) {
	t.Helper()
	ages, err := w.follow(t.Context(), time.Duration(*liveSeconds)*time.Second)
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	if want := *liveFPS * (*liveSeconds - 1); len(ages) < want {
		t.Fatalf("%d frames came in %d seconds, want %d at least", len(ages), *liveSeconds, want)
	}
	r.p50, r.p95 = ages[len(ages)/2].Seconds(), ages[len(ages)*95/100].Seconds()
}

// throughput measures how much a server can give to viewers, beside the streams that it
// takes.
func (b *liveBench) throughput(t *testing.T, w *watcher, r *liveResult) {
	t.Helper()
	l, err := w.list(t.Context(), nil)
	if err != nil || len(l.segments) == 0 {
		t.Fatalf("playlist with %d segments: %v", len(l.segments), err)
	}
	newest := l.segments[len(l.segments)-1]
	media, _, err := w.get(t.Context(), newest)
	if err != nil {
		t.Fatalf("%s: %v", newest, err)
	}
	r.segments = runWrk(t, newest, "").perSecond * float64(len(media)) * 8 / 1e9
	r.playlists = runWrk(t, w.playlist.String(), "").perSecond
}

// startForeign returns what tells the share of the machine's CPU time that neither those who are
// measured nor this process and its ended children have used since.
func startForeign(t *testing.T, measured func(*testing.T) float64) func() float64 {
	t.Helper()
	ours := func() float64 { return measured(t) + cpuOf(t, "self") }
	all, own, start := machineTime(t), ours(), time.Now()
	return func() float64 {
		others := (machineTime(t) - all).Seconds() - (ours() - own)
		return max(0, others/time.Since(start).Seconds()/float64(numCPU()))
	}
}

// profile writes where weir spends its time while it is measured, if that is wanted, and
// closes what it returns when it is done.
func (b *liveBench) profile(t *testing.T, s *liveServer, c liveCase) <-chan struct{} {
	t.Helper()
	done := make(chan struct{})
	if *liveProfile == "" || s.ops == "" {
		close(done)
		return done
	}
	go func() {
		defer close(done)
		for _, kind := range []string{"profile?seconds=" + strconv.Itoa(*liveSeconds), "heap", "allocs"} {
			name, _, _ := strings.Cut(kind, "?")
			if err := save("http://"+s.ops+"/debug/pprof/"+kind, filepath.Join(*liveProfile, fmt.Sprintf("%s-%d-%s", c.server, c.streams, name))); err != nil {
				t.Errorf("profile: %v", err)
			}
		}
	}()
	return done
}

func save(address, file string) error {
	resp, err := http.Get(address)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}

// verdict holds the medians against what is promised.
func (b *liveBench) verdict(t *testing.T, n int) {
	t.Helper()
	of := func(name string) (liveResult, bool) {
		c := liveCase{name, n}
		return b.median(c), len(b.results[c]) > 0
	}
	hold := func(what string, got, limit float64, promised bool) {
		text := fmt.Sprintf("%3d streams: %s %.3f (at most %.3f)", n, what, got, limit)
		switch {
		case !promised:
			text = fmt.Sprintf("%3d streams: %s %.3f", n, what, got)
		case got > limit:
			t.Errorf("%s", text)
		}
		fmt.Println(text)
	}
	fmt.Println()
	bare, hasBare := of(bareServerName)
	for _, c := range []struct {
		name, peer string
		cpu        float64
	}{{weirName, peerName, maxCPU}, {weirRecName, peerRecName, maxCPURecord}} {
		w, ok := of(c.name)
		if !ok {
			continue
		}
		hold(c.name+": seconds to the first playable segment", w.first, maxFirst, true)
		hold(c.name+": seconds of delivery, p95", w.p95, maxP95, true)
		hold(c.name+": MB per stream", w.memory, maxMemory, n >= atStreams)
		if hasBare {
			hold(c.name+" / bare: CPU", w.cpu/bare.cpu, c.cpu, n >= atStreams)
		}
		if p, ok := of(c.peer); ok {
			hold(c.name+" / "+c.peer+": first playable", w.first/p.first, peerFirst, true)
			hold(c.name+" / "+c.peer+": delivery, p95", w.p95/p.p95, peerP95, true)
			hold(c.name+" / "+c.peer+": memory", w.memory/p.memory, peerMemory, n >= atStreams)
			hold(c.name+" / "+c.peer+": CPU", w.cpu/p.cpu, 0, false)
		}
	}
}
