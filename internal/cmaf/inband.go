package cmaf

// InBand returns what must stand before a sync sample of segment n so that it can be
// decoded behind the init segment of the track: nothing as long as the coding is the one
// that this describes, parameter sets from then on. The coding or the size of pictures
// changing is an error.
func (t TrackIndex) InBand(n int) ([]byte, error) {
	sets, err := t.inBand()
	if err != nil {
		return nil, err
	}
	return sets[t.InitOf(n)], nil
}
