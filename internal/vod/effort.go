package vod

import (
	"math"

	"weir/internal/codec"
)

// maxEfforts bounds how many values describe a source, whatever its length.
const maxEfforts = 4096

// Efforts is how hard a source was to encode, over time; see codec.Complexity.
type Efforts struct {
	Step   int64   `json:"step"`   // ticks that a value stands for
	Values []int64 `json:"values"` // from time 0 on
}

// effortMeter adds up efforts while frames come.
type effortMeter struct {
	meter  *codec.Complexity // nil = they can't be told
	step   int64
	values []float64
}

// newEffortMeter returns a meter for a track that b looks into.
func newEffortMeter(b bitstream, timescale int64) effortMeter {
	meter, ok := codec.NewComplexity(b.sets)
	if !ok {
		return effortMeter{}
	}
	return effortMeter{meter: meter, step: max(timescale/4, 1)}
}

// look adds a sample that is shown at a time.
func (m *effortMeter) look(shown int64, sample []byte) {
	if m.meter == nil {
		return
	}
	effort, ok := m.meter.Of(sample)
	if !ok {
		m.meter, m.values = nil, nil
		return
	}
	m.add(shown, effort)
}

func (m *effortMeter) add(shown int64, effort float64) {
	shown = max(shown, 0)
	for shown/m.step >= maxEfforts { // half as many, twice as long
		for i := range m.values {
			if i%2 == 0 {
				m.values[i/2] = m.values[i]
			} else {
				m.values[i/2] += m.values[i]
			}
		}
		m.values = m.values[:(len(m.values)+1)/2]
		m.step *= 2
	}
	for int64(len(m.values)) <= shown/m.step {
		m.values = append(m.values, 0)
	}
	m.values[shown/m.step] += effort
}

// efforts returns what was added up; nil = nothing is known.
func (m *effortMeter) efforts() *Efforts {
	if m.meter == nil || len(m.values) == 0 {
		return nil
	}
	e := &Efforts{Step: m.step}
	for _, v := range m.values {
		e.Values = append(e.Values, int64(math.Round(v)))
	}
	return e
}

// weights divides the efforts over the segments of a grid.
func (e *Efforts) weights(starts []int64) []int64 {
	sums := make([]float64, len(starts))
	n := 0
	for i, v := range e.Values {
		from, to := int64(i)*e.Step, int64(i+1)*e.Step
		for at := from; at < to; {
			for n+1 < len(starts) && starts[n+1] <= at {
				n++
			}
			until := to
			if n+1 < len(starts) {
				until = min(to, starts[n+1])
			}
			sums[n] += float64(v) * float64(until-at) / float64(e.Step)
			at = until
		}
	}
	weights := make([]int64, len(starts))
	for i, s := range sums {
		weights[i] = int64(s)
	}
	return weights
}
