package weir

// ClipSource is what a clip is cut from: a session, whose times are those of the wall clock, or an asset,
// whose times count from its start. A recording is an asset with a session.
type ClipSource struct {
	SessionID string
	AssetID   string
}

// ClipRange is a part of a source without a gap. Times are milliseconds: of the wall clock since 1970, or
// from the start of an asset.
type ClipRange struct {
	Start, End float64
}
