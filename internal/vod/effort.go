package vod

import (
	"math"

	"weir/internal/codec"
)

// maxEfforts bounds the number of values of a source.
const maxEfforts = 4096

// Efforts are the coding complexity of a source over time; see codec.Complexity.
type Efforts struct {
	Step   int64   `json:"step"`   // ticks of a value
	Values []int64 `json:"values"` // from time 0 on
}

// effortMeter adds up efforts during an import.
type effortMeter struct {
	meter  *codec.Complexity // nil = not known
	step   int64
	values []float64
}

// newEffortMeter returns a meter for a track with the parameter sets of b.
func newEffortMeter(b bitstream, timescale int64) effortMeter {
	meter, ok := codec.NewComplexity(b.sets)
	if !ok {
		return effortMeter{}
	}
	return effortMeter{meter: meter, step: max(timescale/4, 1)}
}

// look adds a sample with its presentation time.
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
	for shown/m.step >= maxEfforts { // join pairs of values
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

// efforts returns the sums; nil = not known.
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

// weights distributes the efforts over segments with these starts.
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
