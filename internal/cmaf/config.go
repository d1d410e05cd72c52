package cmaf

// DecoderConfig returns what a decoder must know before the first sample of the track,
// in the form that other containers use too: the body of the avcC, hvcC or av1C box, or
// the AudioSpecificConfig of AAC; nil for what has none of these.
func (t Track) DecoderConfig() []byte {
	if len(t.Entry) < 8 {
		return nil
	}
	switch string(t.Entry[4:8]) {
	case "avc1", "avc3":
		return entryBox(t.Entry, visualEntry, "avcC")
	case "hvc1", "hev1":
		return entryBox(t.Entry, visualEntry, "hvcC")
	case "av01":
		return entryBox(t.Entry, visualEntry, "av1C")
	case "mp4a":
		return parseESDS(entryBox(t.Entry, audioEntry, "esds")).specific
	}
	return nil
}

// IsAAC reports whether the track is AAC whose configuration is known.
func (t Track) IsAAC() bool { return t.Kind == Audio && t.DecoderConfig() != nil }
