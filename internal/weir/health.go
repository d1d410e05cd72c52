package weir

// HealthSample holds what the node of a stream measured over some seconds.
type HealthSample struct {
	Time             Millis  `json:"time"`             // end of the measured seconds
	Bitrate          float64 `json:"bitrate"`          // received, in bits a second
	FPS              float64 `json:"fps"`              // of the video, in frames a second
	Pace             float64 `json:"pace"`             // seconds of media received in each second; 1 = real time
	KeyFrameInterval float64 `json:"keyFrameInterval"` // seconds; 0 = not known yet
	Gaps             int64   `json:"gaps"`             // gaps of more than a second between the times of frames
	Jumps            int64   `json:"jumps"`            // of the encoder's clock
	Drift            float64 `json:"drift"`            // seconds by which audio arrives earlier than video of the same time
	RungLag          float64 `json:"rungLag"`          // seconds by which the slowest rendition is behind the source
	LostFrames       int64   `json:"lostFrames"`       // frames that slow renditions, targets and WebRTC viewers skipped
}

// TargetHealth is the state of the push to a multistream target.
type TargetHealth struct {
	ID        string  `json:"id"`
	Profile   string  `json:"profile"` // the rendition that the target gets
	Status    string  `json:"status"`  // pending, connected, error or disconnected
	Bitrate   float64 `json:"bitrate"` // bits a second
	LastError string  `json:"lastError,omitempty"`
}

// Health is the current and the past health of a stream.
type Health struct {
	IsHealthy   *bool          `json:"isHealthy"` // null = the stream is not on air
	Issues      []string       `json:"issues"`
	Multistream []TargetHealth `json:"multistream"`
	Samples     []HealthSample `json:"samples"` // the oldest first
}
