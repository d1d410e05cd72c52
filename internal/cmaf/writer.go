package cmaf

import (
	"encoding/binary"
	"math"

	"github.com/Eyevinn/mp4ff/mp4"
)

// The names of tracks without a name. Some players need one.
const (
	noVideoName = "VideoHandler"
	noAudioName = "SoundHandler"
	noTextName  = "SubtitleHandler"
)

// Flags of samples.
const (
	syncFlags    = 0x02000000 // depends on no other
	notSyncFlags = 0x01000000 | notSync
)

// Init returns the init segment of a track, which players read before its segments.
func Init(t Track) []byte { return initSegment(t, nil) }

// initSegment is Init for a track with an edit list.
func initSegment(t Track, edits []mp4.ElstEntry) []byte {
	w := new(boxWriter)
	w.box(mp4.NewFtyp("iso6", 0, []string{"iso6", "cmfc", "dash", "mp41"}))
	w.container("moov", func() {
		mvhd := mp4.CreateMvhd()
		mvhd.Timescale = t.Timescale
		w.box(mvhd)
		w.container("trak", func() {
			w.box(trackHeader(t, 1))
			w.edits(edits)
			w.media(t, 0, func() {
				for _, name := range []string{"stts", "stsc", "stco"} {
					w.table(name, func() { w.u32(0) })
				}
				w.table("stsz", func() { w.u64(0) })
			})
		})
		w.container("mvex", func() {
			trex := mp4.CreateTrex(1)
			trex.DefaultSampleFlags = defaultFlags(t)
			w.box(trex)
		})
	})
	return w.data
}

// edits writes an edit list, if there is one.
func (w *boxWriter) edits(entries []mp4.ElstEntry) {
	if len(entries) == 0 {
		return
	}
	elst := &mp4.ElstBox{Entries: entries}
	for _, e := range entries {
		elst.Version = max(elst.Version, version(e.SegmentDuration), version(2*uint64(max(0, e.MediaTime))))
	}
	w.container("edts", func() { w.box(elst) })
}

// trackHeader makes the tkhd box of an enabled track.
func trackHeader(t Track, id uint32) *mp4.TkhdBox {
	tkhd := mp4.CreateTkhd()
	tkhd.TrackID = id
	switch t.Kind {
	case Audio:
		tkhd.Volume = 0x0100
		return tkhd
	case textKind:
		return tkhd
	}
	width, height := t.DisplaySize()
	tkhd.Width, tkhd.Height = mp4.Fixed32(math.Round(width*65536)), mp4.Fixed32(math.Round(height*65536))
	return tkhd
}

// DisplaySize returns the size at which the frames of a video track are shown: their pixels need
// not be square.
func (t Track) DisplaySize() (width, height float64) {
	across, down := pixelAspect(t)
	width, height = float64(t.Width)*float64(across)/float64(down), float64(t.Height)
	if width >= 1<<16 { // more than a track header can hold
		width = float64(t.Width)
	}
	return width, height
}

// media writes the mdia box of a track; tables writes the boxes with the places of its samples.
func (w *boxWriter) media(t Track, duration uint64, tables func()) {
	w.container("mdia", func() {
		mdhd := &mp4.MdhdBox{Timescale: t.Timescale, Duration: duration, Language: packLanguage(t.Language)}
		if duration > math.MaxUint32 {
			mdhd.Version = 1
		}
		w.box(mdhd)
		hdlr, head := &mp4.HdlrBox{HandlerType: "vide", Name: noVideoName}, mp4.Box(mp4.CreateVmhd())
		switch t.Kind {
		case Audio:
			hdlr.HandlerType, hdlr.Name, head = "soun", noAudioName, mp4.CreateSmhd()
		case textKind:
			hdlr.HandlerType, hdlr.Name, head = "sbtl", noTextName, new(mp4.NmhdBox)
		}
		if t.Name != "" {
			hdlr.Name = t.Name
		}
		w.box(hdlr)
		w.container("minf", func() {
			w.box(head)
			w.container("dinf", func() { w.box(mp4.CreateDref()) })
			w.container("stbl", func() {
				w.table("stsd", func() {
					w.u32(1)
					w.data = append(w.data, t.Entry...)
				})
				tables()
			})
		})
	})
}

// packLanguage is the reverse of language.
func packLanguage(code string) uint16 {
	if len(code) != 3 {
		code = "und"
	}
	var packed uint16
	for i := range 3 {
		if code[i] < 'a' || code[i] > 'z' {
			return packLanguage("und")
		}
		packed = packed<<5 | uint16(code[i]-'a'+1)
	}
	return packed
}

// defaultFlags returns the flags of most samples of a track.
func defaultFlags(t Track) uint32 {
	if t.Kind == Audio {
		return syncFlags
	}
	return notSyncFlags
}

func (s Sample) flags() uint32 {
	if s.Sync {
		return syncFlags
	}
	return notSyncFlags
}

// EncodePart encodes samples as a part of a segment, and returns its index entry and its bytes. The
// sequence numbers of the parts of a track must grow. The fragment has times of the timeline, the
// bytes have times with Lead and Delay.
func EncodePart(sequence uint32, t Track, f Fragment) (Part, []byte) {
	part, head := partHead(sequence, t, f)
	return part, append(head, f.Data...)
}

// partHead is EncodePart without the data of the samples, which must follow.
func partHead(sequence uint32, t Track, f Fragment) (Part, []byte) {
	w := &boxWriter{data: make([]byte, 0, 160+16*len(f.Samples))}
	w.container("styp", func() {
		w.data = append(w.data, "msdh\x00\x00\x00\x00msdh"...)
	})
	moof := len(w.data)
	var offsetAt int
	decoded := f.Start + t.Ticks(Lead) - t.Delay
	w.container("moof", func() {
		w.table("mfhd", func() { w.u32(sequence) })
		w.container("traf", func() {
			run := newRunForm(f.Samples, t.Delay)
			w.box(run.tfhd(f.Samples, defaultFlags(t)))
			w.container("tfdt", func() {
				w.u32(1 << 24)
				w.u64(uint64(decoded)) // may be negative; a Reader takes it as signed
			})
			offsetAt = run.write(w, f.Samples)
		})
	})
	binary.BigEndian.PutUint32(w.data[offsetAt:], uint32(len(w.data)-moof+8))
	w.u32(uint32(8 + Bytes(f.Samples)))
	w.data = append(w.data, "mdat"...)
	return Part{Start: f.Start, Head: len(w.data), Samples: f.Samples}, w.data
}

// runForm holds which fields a trun box must list for each sample.
type runForm struct {
	durations, sizes, flags, first, offsets bool
	delay                                   int64
}

func newRunForm(samples []Sample, delay int64) runForm {
	form := runForm{delay: delay}
	for i, s := range samples {
		form.durations = form.durations || s.Duration != samples[0].Duration
		form.sizes = form.sizes || s.Size != samples[0].Size
		form.offsets = form.offsets || int64(s.Offset)+delay != 0
		form.flags = form.flags || i > 1 && s.Sync != samples[1].Sync
	}
	form.first = !form.flags && len(samples) > 1 && samples[0].Sync != samples[1].Sync
	return form
}

// tfhd returns the box with the values that all samples have in common; usual are the flags of the
// init segment.
func (form runForm) tfhd(samples []Sample, usual uint32) *mp4.TfhdBox {
	tfhd := mp4.CreateTfhd(1)
	if len(samples) == 0 {
		return tfhd
	}
	if !form.durations {
		tfhd.Flags |= mp4.TfhdDefaultSampleDurationPresentFlag
		tfhd.DefaultSampleDuration = samples[0].Duration
	}
	if !form.sizes {
		tfhd.Flags |= mp4.TfhdDefaultSampleSizePresentFlag
		tfhd.DefaultSampleSize = samples[0].Size
	}
	common := samples[min(1, len(samples)-1)].flags()
	if !form.flags && common != usual {
		tfhd.Flags |= mp4.TfhdDefaultSampleFlagsPresentFlag
		tfhd.DefaultSampleFlags = common
	}
	return tfhd
}

// write writes the trun box and returns the position in w of its data offset.
func (form runForm) write(w *boxWriter, samples []Sample) (offsetAt int) {
	flags := mp4.TrunDataOffsetPresentFlag
	for _, member := range [...]struct {
		flag uint32
		set  bool
	}{
		{mp4.TrunFirstSampleFlagsPresentFlag, form.first},
		{mp4.TrunSampleDurationPresentFlag, form.durations},
		{mp4.TrunSampleSizePresentFlag, form.sizes},
		{mp4.TrunSampleFlagsPresentFlag, form.flags},
		{mp4.TrunSampleCompositionTimeOffsetPresentFlag, form.offsets},
	} {
		if member.set {
			flags |= member.flag
		}
	}
	w.container("trun", func() {
		w.u32(1<<24 | flags) // version 1: offsets have a sign
		w.u32(uint32(len(samples)))
		offsetAt = len(w.data)
		w.u32(0)
		if form.first {
			w.u32(samples[0].flags())
		}
		for _, s := range samples {
			if form.durations {
				w.u32(s.Duration)
			}
			if form.sizes {
				w.u32(s.Size)
			}
			if form.flags {
				w.u32(s.flags())
			}
			if form.offsets {
				w.u32(uint32(int64(s.Offset) + form.delay))
			}
		}
	})
	return offsetAt
}
