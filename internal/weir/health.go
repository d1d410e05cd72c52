package weir

// HealthSample is how a stream did for some seconds, as its node measured it.
type HealthSample struct {
	Time             Millis  `json:"time"`             // when the seconds ended
	Bitrate          float64 `json:"bitrate"`          // of what came, in bits a second
	FPS              float64 `json:"fps"`              // of the picture, in frames a second
	Pace             float64 `json:"pace"`             // seconds of media that came in each second; 1 = real time
	KeyFrameInterval float64 `json:"keyFrameInterval"` // seconds; 0 = not known yet
	Gaps             int64   `json:"gaps"`             // holes of more than a second in the times of frames
	Jumps            int64   `json:"jumps"`            // of the encoder's clock
	Drift            float64 `json:"drift"`            // seconds by which audio comes earlier than the picture of the same time
	RungLag          float64 `json:"rungLag"`          // seconds by which the slowest rendition is behind the source
	LostFrames       int64   `json:"lostFrames"`       // that renditions, targets and viewers over WebRTC were too slow for
}

// TargetHealth is how the push to a multistream target does.
type TargetHealth struct {
	ID        string  `json:"id"`
	Profile   string  `json:"profile"` // the rendition that the target gets
	Status    string  `json:"status"`  // pending, connected, error or disconnected
	Bitrate   float64 `json:"bitrate"` // bits a second
	LastError string  `json:"lastError,omitempty"`
}

// Health is how a stream does and did.
type Health struct {
	IsHealthy   *bool          `json:"isHealthy"` // null = it is not on air
	Issues      []string       `json:"issues"`
	Multistream []TargetHealth `json:"multistream"`
	Samples     []HealthSample `json:"samples"` // the oldest first
}
