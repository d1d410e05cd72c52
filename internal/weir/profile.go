package weir

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Profile says how a rendition is encoded. Streams need width, height, name,
// bitrate and fps; files need only a bitrate.
type Profile struct {
	Name    string `json:"name,omitempty"`
	Width   int    `json:"width,omitempty"`
	Height  int    `json:"height,omitempty"`
	Bitrate int    `json:"bitrate"`           // bits per second
	FPS     *int   `json:"fps,omitempty"`     // 0 or absent = that of the source
	FPSDen  int    `json:"fpsDen,omitempty"`  // frame rate = fps/fpsDen
	Quality *int   `json:"quality,omitempty"` // constant quality, 0..44, higher is worse
	GOP     string `json:"gop,omitempty"`     // seconds, or "intra"
	Profile string `json:"profile,omitempty"` // of H.264
	Encoder string `json:"encoder,omitempty"` // as SDKs know it; see normalizeEncoder
	Codec   string `json:"codec,omitempty"`   // only AV1, for which SDKs know no encoder
}

// UnmarshalJSON reads a profile and normalizes the name of its encoder.
func (p *Profile) UnmarshalJSON(data []byte) error {
	type plain Profile
	if err := json.Unmarshal(data, (*plain)(p)); err != nil {
		return err
	}
	p.normalizeEncoder()
	p.complete()
	return nil
}

// complete adds what follows from the height: the width, of which the video's own aspect ratio
// makes the real one (Fit), and the usual bitrate of that size.
func (p *Profile) complete() {
	if p.Height > 0 && p.Width == 0 {
		p.Width = usualWidth(p.Height)
	}
	if p.Bitrate == 0 && p.Width > 0 && p.Height > 0 {
		p.Bitrate = usualBitrate(p.Width, p.Height)
	}
}

// normalizeEncoder writes the encoder the way SDKs know it: `h264` becomes `H.264`. AV1 moves to a
// member that SDKs do not read: they refuse unknown encoders.
func (p *Profile) normalizeEncoder() {
	switch strings.ToLower(strings.ReplaceAll(p.Encoder, ".", "")) {
	case "h264":
		p.Encoder = "H.264"
	case "hevc", "vp8", "vp9":
		p.Encoder = strings.ToUpper(p.Encoder)
	case "av1":
		p.Encoder, p.Codec = "", "AV1"
	}
}

// DefaultProfiles returns the ladder of a stream that was created without profiles.
func DefaultProfiles() []Profile {
	rung := func(name string, width, height, bitrate int) Profile {
		return Profile{Name: name, FPS: new(0), Bitrate: bitrate, Width: width, Height: height, Profile: "H264ConstrainedHigh"}
	}
	return []Profile{
		rung("240p0", 426, 240, 250_000),
		rung("360p0", 640, 360, 800_000),
		rung("480p0", 854, 480, 1_600_000),
		rung("720p0", 1280, 720, 3_000_000),
	}
}

// minSide is the minimum width and height that encoders can handle.
const minSide = 16

// Fit returns the size of the rendition of a video. Its larger side is that of the profile; the
// other side follows from the aspect ratio of the video.
func (p Profile) Fit(width, height int) (int, int) {
	if even(width) == p.Width && even(height) == p.Height {
		return p.Width, p.Height // the size of the source, rounded to even numbers
	}
	larger := float64(max(p.Width, p.Height))
	near := func(side float64) int { return max(2*int(math.Round(side/2)), minSide) }
	if width >= height {
		return near(larger), near(larger * float64(height) / float64(width))
	}
	return near(larger * float64(width) / float64(height)), near(larger)
}

// Enlarges reports whether the rendition would be larger than the video. A ladder leaves such a
// rung out, because the source itself is better.
func (p Profile) Enlarges(width, height int) bool {
	w, h := p.Fit(width, height)
	return w > even(width) || h > even(height)
}

// even returns the next even number.
func even(n int) int { return (n + 1) &^ 1 }

// profileName matches names that are safe for folders and files.
var profileName = regexp.MustCompile(`^[\pL\pN_][\pL\pN ._+@-]*$`)

// reservedName matches the other files and folders beside those of renditions.
var reservedName = regexp.MustCompile(`^(video|thumbnails|text|download|t|work|(source-)?audio[0-9]*|index\.m3u8|metadata\.json|presentation\.json|poster\.jpg)$`)

// maxName is in bytes: file systems take 255, and extensions come after it.
const maxName = 200

// checkProfiles checks the names of profiles, which are names of folders and files too.
func checkProfiles(kind Kind, profiles []Profile) error {
	seen := map[string]bool{}
	for i, p := range profiles {
		switch {
		case p.Name == "":
			continue
		case p.Name == "source":
			return Errorf(kind, `profile cannot be named "source"`)
		case reservedName.MatchString(p.Name):
			return Errorf(kind, "profile cannot be named %q: other files of the video have that name; choose another one", p.Name)
		case seen[p.Name]:
			return Errorf(kind, "duplicate profile name %q", p.Name)
		case len(p.Name) > maxName:
			return Errorf(Invalid, "profiles[%d].name: %d bytes are too many for the name of a file; use at most %d", i, len(p.Name), maxName)
		case !profileName.MatchString(p.Name) || strings.HasSuffix(p.Name, ".") || strings.HasSuffix(p.Name, " "):
			return Errorf(Invalid, "profiles[%d].name: %q can't be the name of a folder; use letters, digits and ._+@-", i, p.Name)
		}
		seen[p.Name] = true
	}
	return nil
}

// CheckFileProfiles checks profiles for renditions of a file.
func CheckFileProfiles(profiles []Profile) error {
	if err := checkProfiles(Invalid, profiles); err != nil {
		return err
	}
	for i, p := range profiles {
		switch {
		case p.Encoder == "VP8":
			return Errorf(Invalid, "profiles[%d].encoder: VP8 is not supported, use VP9", i)
		case p.Width != 0 && p.Height == 0:
			return Errorf(Invalid, "profiles[%d]: give a height with the width, or neither", i)
		case p.Width == 0 && len(profiles) > 1:
			return Errorf(Invalid, "profiles[%d]: width and height are needed when there is more than one profile", i)
		case p.Bitrate == 0:
			return Errorf(Invalid, "profiles[%d]: give a bitrate, or a height, from which a bitrate follows", i)
		case !validGOP(p.GOP):
			return Errorf(Invalid, `profiles[%d].gop: %q is neither seconds such as "2.0" nor "intra"`, i, p.GOP)
		case shortGOP(p.GOP):
			return Errorf(Invalid, `profiles[%d].gop: %q is shorter than %g seconds; use "intra" if every frame is to be a key frame`, i, p.GOP, minGOP)
		case p.FPS != nil && *p.FPS > maxFPS*max(p.FPSDen, 1):
			return Errorf(Invalid, "profiles[%d].fps: at most %d frames a second are allowed", i, maxFPS)
		}
	}
	return nil
}

var gopSeconds = regexp.MustCompile(`^[0-9]{1,4}(\.[0-9]{1,6})?$`)

func validGOP(gop string) bool { return gop == "" || gop == "intra" || gopSeconds.MatchString(gop) }

// Bounds of what a caller can make of a second of video.
const (
	maxFPS = 240
	minGOP = 0.05 // seconds
)

func shortGOP(gop string) bool {
	seconds, err := strconv.ParseFloat(gop, 64)
	return err == nil && seconds > 0 && seconds < minGOP
}
