package cmaf

// Packer packs the samples of one track into parts and segments, in weir's form. A part is a
// moof box and an mdat box with a few samples; it is the smallest unit that players can fetch.
// A segment is one or more parts, and is stored as one file.
//
// The caller decides where both end: it adds the samples in decode order and calls EndPart and
// EndSegment in between, by what OpenPart and OpenSegment say. The sink takes each part as it
// ends. The packer does not copy the data of samples: it refers to it until the sink has it.
//
// The zero Packer with a Track and a Sink is ready.
type Packer struct {
	Track       Track
	Sink        Sink
	Sequence    uint32 // number of the newest part in its mfhd box, which must grow within a track
	OpenPart    Contents
	OpenSegment Contents

	samples []Sample // of the open part
	buffers [][]byte // the data of the samples, after a place for the head of the part
}

// Contents sums up the samples of the open part or the open segment. It is zero if none is open.
type Contents struct {
	Start    int64 // when the first sample is decoded
	Duration int64 // of the samples together, in ticks
	Samples  int
	Bytes    int64
}

// Sink takes the parts and segments of a Packer.
type Sink interface {
	// Part appends a part to the open segment, or opens a segment with it. The buffers are the
	// bytes of the part in order: its head and the data of each sample. The sink must not keep
	// the slice of buffers. If last is true, the segment ends with this part.
	Part(part Part, last bool, buffers ...[]byte) error
	// EndSegment ends the open segment, of which the sink has all parts.
	EndSegment() error
}

// Add adds a sample, which is decoded at the given time, to the open part.
func (p *Packer) Add(at int64, s Sample, data []byte) {
	if p.OpenPart.Samples == 0 {
		p.buffers = append(p.buffers[:0], nil)
	}
	p.samples, p.buffers = append(p.samples, s), append(p.buffers, data)
	p.OpenPart.add(at, s)
	p.OpenSegment.add(at, s)
}

func (c *Contents) add(at int64, s Sample) {
	if c.Samples == 0 {
		c.Start = at
	}
	c.Duration += int64(s.Duration)
	c.Samples++
	c.Bytes += int64(s.Size)
}

// EndPart gives the open part to the sink, if there is one.
func (p *Packer) EndPart() error {
	if p.OpenPart.Samples == 0 {
		return nil
	}
	return p.write(false)
}

// EndSegment ends the open segment, and with it the open part. After an error it can be tried
// again, without the part.
func (p *Packer) EndSegment() error {
	if p.OpenSegment.Samples == 0 {
		return nil
	}
	var err error
	if p.OpenPart.Samples > 0 {
		err = p.write(true)
	} else {
		err = p.Sink.EndSegment()
	}
	if err == nil {
		p.OpenSegment = Contents{}
	}
	return err
}

// write gives the open part to the sink.
func (p *Packer) write(last bool) error {
	p.Sequence++
	part, head := partHead(p.Sequence, p.Track, Fragment{Start: p.OpenPart.Start, Samples: p.samples})
	p.buffers[0] = head
	p.samples, p.OpenPart = make([]Sample, 0, len(part.Samples)), Contents{}
	defer clear(p.buffers)
	return p.Sink.Part(part, last, p.buffers...)
}
