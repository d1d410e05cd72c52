package vod

import (
	"sync"
	"time"
)

// meter combines the progress of the steps of a run.
type meter struct {
	report func(Progress)

	mu      sync.Mutex
	last    Progress
	begun   time.Time // of encoding
	weights []float64 // of the chunks: seconds of the source
	shares  []float64 // of each chunk that are done
	total   float64   // seconds
	resumed float64   // seconds that were done when encoding began
	rate    float64   // frames a second of the source
}

// The fraction of a run after each step.
const (
	shareFetched = 0.05
	shareRead    = 0.10
	shareEncoded = 0.97
	minElapsed   = 1.0 // before a speed is reported
)

func newMeter(report func(Progress)) *meter {
	if report == nil {
		report = func(Progress) {}
	}
	return &meter{report: report}
}

// bytes reports how much of the source is fetched.
func (m *meter) bytes(done, total int64) {
	share := 0.0
	if total > 0 {
		share = float64(done) / float64(total)
	}
	m.send(Progress{Step: "fetching", Fraction: shareFetched * share})
}

// step returns the function that reports how much of the source is read.
func (m *meter) step(name string) func(share float64) {
	m.send(Progress{Step: name, Fraction: shareFetched})
	return func(share float64) {
		m.send(Progress{Step: name, Fraction: shareFetched + (shareRead-shareFetched)*share})
	}
}

// encoding begins the main part.
func (m *meter) encoding(plan *Plan, done []ChunkResult) {
	m.mu.Lock()
	m.begun, m.rate = time.Now(), plan.Rate.Float()
	m.weights, m.shares = make([]float64, len(plan.Chunks)), make([]float64, len(plan.Chunks))
	for n, c := range plan.Chunks {
		m.weights[n] = plan.Source.Duration
		if c.Segments > 0 {
			m.weights[n] = float64(c.End-c.Start) / float64(plan.Timescale)
		}
		m.total += m.weights[n]
	}
	for _, c := range done {
		m.shares[c.Chunk] = 1
		m.resumed += m.weights[c.Chunk]
	}
	m.mu.Unlock()
	m.encoded()
}

// chunk reports how much of a chunk is encoded.
func (m *meter) chunk(n int, share float64) {
	m.mu.Lock()
	m.shares[n] = max(m.shares[n], share)
	m.mu.Unlock()
	m.encoded()
}

func (m *meter) encoded() {
	m.mu.Lock()
	seconds := 0.0
	for n, share := range m.shares {
		seconds += share * m.weights[n]
	}
	p := Progress{Step: "encoding", Fraction: shareEncoded}
	elapsed := time.Since(m.begun).Seconds()
	if m.total > 0 {
		p.Fraction = shareRead + (shareEncoded-shareRead)*seconds/m.total
	}
	if m.total > 0 && seconds == m.total || m.total == 0 {
		p.Step = "finishing"
	} else if speed := (seconds - m.resumed) / elapsed; elapsed >= minElapsed && speed > 0 {
		p.Speed, p.FPS = speed, speed*m.rate
		p.ETA = time.Duration((m.total - seconds) / speed * float64(time.Second))
	}
	m.mu.Unlock()
	m.send(p)
}

func (m *meter) done() { m.send(Progress{Step: "finishing", Fraction: 1}) }

// send reports progress, which never decreases.
func (m *meter) send(p Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.Fraction = max(p.Fraction, m.last.Fraction)
	m.last = p
	m.report(p)
}
