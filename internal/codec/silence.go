package codec

// Silence in AAC-LC: 48 kHz, stereo. It replaces audio that is missing or not wanted.
const (
	SilenceRate     = 48000 // samples a second
	SilenceDuration = 1024  // samples of a frame
	// SilenceConfig is the AudioSpecificConfig.
	SilenceConfig = "\x11\x90"
	// SilenceFrame is a channel pair without a common window, no scale factor bands in
	// either channel, and the end element.
	SilenceFrame = "\x20\x00\x00\x00\x00\x00\x0e"
)
