package cmaf

import (
	"encoding/binary"
	"math"
	"math/big"

	"github.com/Eyevinn/mp4ff/mp4"

	"weir/internal/weir"
)

// Layout is a file that is made of new bytes and of bytes of stored segments: its head, then its
// extents one after the other.
type Layout struct {
	Head    []byte
	Init    int // of a single file: how much of the head is the init segment; the rest is its sidx box
	Extents []Extent
	Size    int64 // of the whole file
}

// Extent is a range of bytes of a stored segment, and its place in a file.
type Extent struct {
	Track, Segment int    // which segment: positions in what the layout was made of; texts come after the tracks
	Offset, Length int64  // the range in the segment
	At             int64  // where it starts in the file
	Bytes          []byte // instead of a range of a segment, if there are some
}

// interleave is the duration of the chunks of a track in a progressive file, in seconds.
const interleave = 0.5

// Progressive lays out tracks as one MP4 file that plays while it is downloaded: its moov box comes
// first. The file starts at 0, or with the first track if that starts later; frames before 0 are in
// the file, but hidden by an edit list. Gaps between connections of an encoder are left out. The
// texts are further tracks. The head has at least pad bytes. The boxes come after its ftyp box.
func Progressive(tracks []TrackIndex, texts []TextTrack, pad int, boxes ...[]byte) (Layout, error) {
	if len(tracks) == 0 {
		return Layout{}, weir.Errorf(weir.Invalid, "an MP4 file needs a track")
	}
	movie := movieForm{tracks: make([]*trackForm, len(tracks)), boxes: boxes}
	for i, t := range closeGaps(tracks) {
		var err error
		if movie.tracks[i], err = newTrackForm(i, t); err != nil {
			return Layout{}, err
		}
	}
	for i, t := range texts {
		movie.texts = append(movie.texts, newTextForm(len(tracks)+i, t, movie.tracks[0]))
	}
	if err := movie.edit(); err != nil {
		return Layout{}, err
	}
	movie.editTexts()
	movie.choose()
	return movie.layout(pad), nil
}

// trackForm is the layout of a track in a progressive file.
type trackForm struct {
	Track
	position  int
	start     int64 // decode time of its first sample
	span      int64 // from there to its end
	shown     int64 // when its first frame is shown, from start
	latest    int64 // when its last frame is shown, from start
	shift     int64 // added to offsets so that none is negative
	durations runTable
	offsets   runTable
	syncs     []uint32 // numbers of the sync samples, from 1
	sizes     []uint32
	chunks    []chunk

	late     uint64 // ticks of the movie until it is shown
	length   uint64 // ticks of the movie for which it is shown
	skipped  int64  // ticks of the track that are not shown
	disabled bool
	group    int16
}

// chunk is a run of consecutive samples of a track in the file.
type chunk struct {
	before  []byte // parameter sets, which belong to its first sample; of a text all that there is
	extent  Extent
	start   int64
	samples int
}

// runTable is a list of values, as pairs of count and value.
type runTable []struct{ count, value uint32 }

func (r *runTable) add(value uint32) {
	if n := len(*r); n > 0 && (*r)[n-1].value == value {
		(*r)[n-1].count++
		return
	}
	*r = append(*r, struct{ count, value uint32 }{1, value})
}

func newTrackForm(position int, t TrackIndex) (*trackForm, error) {
	f := &trackForm{Track: t.Track, position: position, start: t.Start(), shown: math.MaxInt64}
	sets := make([][]byte, len(t.Changes)+1)
	if entry, ok := t.oneEntry(); ok {
		f.Entry = entry
	} else {
		var err error
		if sets, err = t.inBand(); err != nil {
			return nil, err
		}
	}
	for _, s := range t.Segments {
		for _, p := range s.Parts {
			for _, sample := range p.Samples {
				f.shift = max(f.shift, -int64(sample.Offset))
			}
		}
	}
	var last *Part // with its last sample still to be written
	var lastAt int64
	for n, s := range t.Segments {
		offset := int64(0)
		for i := range s.Parts {
			p := &s.Parts[i]
			if len(p.Samples) == 0 {
				offset += p.Size()
				continue
			}
			if last != nil {
				if err := f.addLast(last, p.Start-lastAt); err != nil {
					return nil, err
				}
			}
			lastAt = f.addPart(n, offset, p, sets[t.InitOf(n)])
			last = p
			offset += p.Size()
		}
	}
	if last == nil {
		return nil, weir.Errorf(weir.Invalid, "track %d has no samples", position)
	}
	duration := int64(last.Samples[len(last.Samples)-1].Duration)
	f.shown = max(f.shown, t.Track.Priming)
	// A track that breaks off can end with a frame that is shown after missing B-frames: the file
	// ends with that frame.
	duration += max(0, f.latest-(lastAt-f.start))
	f.span = lastAt + duration - f.start
	return f, f.addLast(last, duration)
}

// addPart adds a part, which starts at the given byte of segment n, without the duration of its last
// sample, which depends on the next part. It returns when the last sample is decoded. The sets are
// put before sync samples.
func (f *trackForm) addPart(n int, offset int64, p *Part, sets []byte) (lastAt int64) {
	at := p.Start
	offset += int64(p.Head)
	c := chunk{extent: Extent{Track: f.position, Segment: n, Offset: offset}, start: at}
	for i, s := range p.Samples {
		size, prefixed := s.Size, s.Sync && len(sets) > 0
		if c.samples > 0 && (prefixed || float64(at-c.start) >= interleave*float64(f.Timescale)) {
			f.chunks = append(f.chunks, c)
			c = chunk{extent: Extent{Track: f.position, Segment: n, Offset: offset}, start: at}
		}
		if prefixed {
			c.before, size = sets, size+uint32(len(sets))
		}
		c.samples++
		c.extent.Length += int64(s.Size)
		offset += int64(s.Size)

		f.shown = min(f.shown, at+int64(s.Offset)-f.start)
		f.latest = max(f.latest, at+int64(s.Offset)-f.start)
		f.offsets.add(uint32(int64(s.Offset) + f.shift))
		f.sizes = append(f.sizes, size)
		if s.Sync {
			f.syncs = append(f.syncs, uint32(len(f.sizes)))
		}
		if i < len(p.Samples)-1 {
			f.durations.add(s.Duration)
			at += int64(s.Duration)
		}
	}
	f.chunks = append(f.chunks, c)
	return at
}

// addLast adds the duration of the last sample of a part. Where the track has a gap or parts overlap
// a little, this sample is made longer or shorter, so that later samples keep their times.
func (f *trackForm) addLast(p *Part, duration int64) error {
	if duration < 0 || duration > math.MaxUint32 {
		return weir.Errorf(weir.Invalid, "track %d has a gap or an overlap at tick %d: the next sample is %d ticks later", f.position, p.Start, duration)
	}
	f.durations.add(uint32(duration))
	return nil
}

// movieForm is the layout of a progressive file.
type movieForm struct {
	tracks []*trackForm
	texts  []*trackForm
	boxes  [][]byte // of the caller, after ftyp
	scale  uint32
	length uint64 // ticks of the movie
}

// edit sets the timescale of the movie and when each track is shown.
func (m *movieForm) edit() error {
	origin := m.tracks[0].seconds(m.tracks[0].shown)
	longest := new(big.Rat)
	for _, t := range m.tracks {
		if s := t.seconds(t.shown); s.Cmp(origin) < 0 {
			origin = s
		}
	}
	if origin.Sign() < 0 {
		origin = new(big.Rat)
	}
	for _, t := range m.tracks {
		if length := new(big.Rat).Sub(t.seconds(t.span), origin); length.Cmp(longest) > 0 {
			longest = length
		}
	}
	m.scale = m.timescale(longest)
	for _, t := range m.tracks {
		from, to := t.seconds(t.shown), t.seconds(t.span)
		t.skipped = t.shown + t.shift
		if from.Cmp(origin) < 0 { // before 0, which is the origin then
			t.skipped = -t.start + t.shift
			from = origin
		}
		if to.Cmp(from) < 0 {
			return weir.Errorf(weir.Invalid, "track %d ends before the presentation starts", t.position)
		}
		t.late = m.ticks(new(big.Rat).Sub(from, origin), false)
		t.length = m.ticks(new(big.Rat).Sub(to, from), true)
		m.length = max(m.length, t.late+t.length)
	}
	return nil
}

// seconds turns ticks since the track's start into a time of the presentation.
func (f *trackForm) seconds(ticks int64) *big.Rat {
	return big.NewRat(f.start+ticks, int64(f.Timescale))
}

// timescale returns a timescale in which the times of all tracks are whole numbers; if the duration
// of the file would not fit into 32 bits then, the largest timescale of the tracks.
func (m *movieForm) timescale(length *big.Rat) uint32 {
	common, finest := uint64(1), uint32(1)
	for _, t := range m.tracks {
		finest = max(finest, t.Timescale)
		if common <= math.MaxUint32 {
			common = common / uint64(gcd(uint32(common), t.Timescale)) * uint64(t.Timescale)
		}
	}
	all := new(big.Rat).Mul(length, new(big.Rat).SetUint64(common))
	if common <= math.MaxInt32 && all.Cmp(new(big.Rat).SetInt64(math.MaxUint32-1)) < 0 {
		return uint32(common)
	}
	return finest
}

// ticks turns seconds into ticks of the movie, rounded to the nearest one or up.
func (m *movieForm) ticks(seconds *big.Rat, up bool) uint64 {
	all := new(big.Rat).Mul(seconds, new(big.Rat).SetInt64(int64(m.scale)))
	if !up {
		all.Add(all, big.NewRat(1, 2))
	}
	ticks, rest := new(big.Int).QuoRem(all.Num(), all.Denom(), new(big.Int))
	if up && rest.Sign() > 0 {
		return ticks.Uint64() + 1
	}
	return ticks.Uint64()
}

// choose enables one of several audio tracks.
func (m *movieForm) choose() {
	var audios []*trackForm
	first := 0
	for _, t := range m.tracks {
		if t.Kind == Audio {
			if t.Default && (len(audios) == 0 || !audios[first].Default) {
				first = len(audios)
			}
			audios = append(audios, t)
		}
	}
	if len(audios) < 2 {
		return
	}
	for i, t := range audios {
		t.group, t.disabled = alternateAudio, i != first
	}
}

// layout writes the head and places the chunks.
func (m *movieForm) layout(pad int) Layout {
	order, size := m.order()
	w, tables := m.moov(false)
	head := m.headSize(len(w.data), size, pad)
	if wide := head+size > math.MaxUint32; wide {
		w, tables = m.moov(true)
		head = m.headSize(len(w.data), size, pad)
	}
	mdat := mdatHead(size)
	if free := int(head) - len(w.data) - len(mdat); free > 0 {
		w.container("free", func() { w.data = append(w.data, make([]byte, free-8)...) })
	}
	w.data = append(w.data, mdat...)

	l := Layout{Size: head + size}
	at := head
	for _, c := range order {
		tables[c.extent.Track].put(w.data, at)
		if size := int64(len(c.before)); size > 0 {
			l.Extents = append(l.Extents, Extent{Track: c.extent.Track, Length: size, At: at, Bytes: c.before})
			at += size
		}
		c.extent.At = at
		at += c.extent.Length
		last := len(l.Extents) - 1
		if last >= 0 && l.Extents[last].goesOn(c.extent) {
			l.Extents[last].Length += c.extent.Length
		} else if c.extent.Length > 0 {
			l.Extents = append(l.Extents, c.extent)
		}
	}
	l.Head = w.data
	return l
}

func (e Extent) goesOn(next Extent) bool {
	return e.Bytes == nil && e.Track == next.Track && e.Segment == next.Segment && e.Offset+e.Length == next.Offset
}

// order returns the chunks of all tracks by time, and their size.
func (m *movieForm) order() (all []chunk, size int64) {
	tracks := m.all()
	next := make([]int, len(tracks))
	for {
		first, at := -1, 0.0
		for i, t := range tracks {
			if next[i] == len(t.chunks) {
				continue
			}
			if s := float64(t.chunks[next[i]].start) / float64(t.Timescale); first < 0 || s < at {
				first, at = i, s
			}
		}
		if first < 0 {
			return all, size
		}
		c := tracks[first].chunks[next[first]]
		next[first]++
		all = append(all, c)
		size += int64(len(c.before)) + c.extent.Length
	}
}

func mdatHead(size int64) []byte {
	if size+8 > math.MaxUint32 {
		head := binary.BigEndian.AppendUint32(nil, 1)
		head = append(head, "mdat"...)
		return binary.BigEndian.AppendUint64(head, uint64(size)+16)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(size)+8), "mdat"...)
}

// headSize returns the size of the head if everything before the padding has used bytes.
func (m *movieForm) headSize(used int, size int64, pad int) int64 {
	used += len(mdatHead(size))
	if used < pad {
		used = max(pad, used+8)
	}
	return int64(used)
}

// offsetTable is the place in the head for the offsets of a track's chunks.
type offsetTable struct {
	at   int
	wide bool
}

func (t *offsetTable) put(head []byte, offset int64) {
	if t.wide {
		binary.BigEndian.PutUint64(head[t.at:], uint64(offset))
		t.at += 8
		return
	}
	binary.BigEndian.PutUint32(head[t.at:], uint32(offset))
	t.at += 4
}

func (m *movieForm) moov(wide bool) (*boxWriter, []*offsetTable) {
	w := new(boxWriter)
	brands := []string{"isom", "iso2", "mp41"}
	for _, t := range m.tracks {
		if entry, _, ok := nextBox(t.Entry); ok && (entry.name == "avc1" || entry.name == "av01") {
			brands = append(brands, entry.name)
		}
	}
	w.box(mp4.NewFtyp("isom", 512, brands))
	for _, b := range m.boxes {
		w.data = append(w.data, b...)
	}
	tracks := m.all()
	tables := make([]*offsetTable, len(tracks))
	w.container("moov", func() {
		mvhd := mp4.CreateMvhd()
		mvhd.Timescale, mvhd.Duration, mvhd.NextTrackID = m.scale, m.length, uint32(len(tracks)+1)
		mvhd.Version = version(m.length)
		w.box(mvhd)
		for i, t := range tracks {
			w.container("trak", func() {
				t.header(w, uint32(i+1))
				w.media(t.Track, uint64(t.span), func() { tables[i] = t.tables(w, wide) })
			})
		}
	})
	return w, tables
}

// version returns the version of a box that can hold the number.
func version(n uint64) byte {
	if n > math.MaxUint32 {
		return 1
	}
	return 0
}

func (f *trackForm) header(w *boxWriter, id uint32) {
	tkhd := trackHeader(f.Track, id)
	tkhd.Duration = f.late + f.length
	tkhd.Version = version(tkhd.Duration)
	tkhd.AlternateGroup = f.group
	tkhd.Flags = 3
	if f.disabled {
		tkhd.Flags = 2
	}
	w.box(tkhd)
	// ffmpeg lets a text without an edit list last as long as the file.
	if f.late == 0 && f.skipped == 0 && f.Kind != textKind {
		return
	}
	var edits []mp4.ElstEntry
	if f.late > 0 {
		edits = append(edits, mp4.ElstEntry{SegmentDuration: f.late, MediaTime: -1, MediaRateInteger: 1})
	}
	w.edits(append(edits, mp4.ElstEntry{SegmentDuration: f.length, MediaTime: f.skipped, MediaRateInteger: 1}))
}

// tables writes the boxes with the places of the samples, and reserves the offsets of the chunks.
func (f *trackForm) tables(w *boxWriter, wide bool) *offsetTable {
	w.runs("stts", f.durations)
	if len(f.offsets) > 1 || f.offsets[0].value != 0 {
		w.runs("ctts", f.offsets)
	}
	if len(f.syncs) < len(f.sizes) {
		w.table("stss", func() {
			w.u32(uint32(len(f.syncs)))
			for _, n := range f.syncs {
				w.u32(n)
			}
		})
	}
	w.table("stsz", func() {
		w.u32(0)
		w.u32(uint32(len(f.sizes)))
		for _, n := range f.sizes {
			w.u32(n)
		}
	})
	f.chunkRuns(w)
	name, width := "stco", 4
	if wide {
		name, width = "co64", 8
	}
	t := &offsetTable{wide: wide}
	w.table(name, func() {
		w.u32(uint32(len(f.chunks)))
		t.at = len(w.data)
		w.data = append(w.data, make([]byte, width*len(f.chunks))...)
	})
	return t
}

func (w *boxWriter) runs(name string, runs runTable) {
	w.table(name, func() {
		w.u32(uint32(len(runs)))
		for _, r := range runs {
			w.u32(r.count)
			w.u32(r.value)
		}
	})
}

// chunkRuns writes the number of samples of the chunks.
func (f *trackForm) chunkRuns(w *boxWriter) {
	w.table("stsc", func() {
		at, count := len(w.data), uint32(0)
		w.u32(0)
		before := 0
		for i, c := range f.chunks {
			if c.samples == before {
				continue
			}
			before = c.samples
			count++
			w.u32(uint32(i + 1))
			w.u32(uint32(c.samples))
			w.u32(1)
		}
		binary.BigEndian.PutUint32(w.data[at:], count)
	})
}
