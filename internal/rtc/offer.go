package rtc

import (
	"encoding/base64"
	"slices"
	"strings"

	"github.com/pion/sdp/v3"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

const (
	// MaxOffer is the maximum size of an offer. Those of browsers have some 10 KiB.
	MaxOffer = 64 << 10
	// maxSections is the maximum number of media sections of an offer.
	maxSections = 16
	// maxSets is the maximum size of the parameter sets in an offer.
	maxSets = 16 << 10
)

// offer is a parsed SDP offer.
type offer struct {
	text         string   // for pion
	video, audio bool     // there is a section with a codec that weir supports
	sets         [][]byte // parameter sets of H.264
}

// readOffer parses an offer. Media sections with the given direction are not used: they go the
// wrong way.
func readOffer(text, direction string) (offer, error) {
	bad := func(format string, args ...any) (offer, error) {
		return offer{}, weir.Errorf(weir.Refused, "the offer can't be used: "+format, args...)
	}
	if len(text) > MaxOffer {
		return offer{}, weir.Errorf(weir.TooLarge, "the offer is longer than %d bytes", MaxOffer)
	}
	var d sdp.SessionDescription
	if err := d.UnmarshalString(text); err != nil || text == "" {
		return bad("it is not SDP")
	}
	if _, lite := d.Attribute(sdp.AttrKeyICELite); lite {
		return bad("it comes from an ICE-lite agent, and this server is one too; use a full ICE agent")
	}
	if len(d.MediaDescriptions) > maxSections {
		return bad("it has more than %d media sections", maxSections)
	}
	var o offer
	var foreign, wrongWay bool
	for _, m := range d.MediaDescriptions {
		// ICE candidates of the peer are not used: it is answered at the address that it sends from.
		m.Attributes = slices.DeleteFunc(m.Attributes, isCandidate)
		kind := m.MediaName.Media
		if kind != string(cmaf.Video) && kind != string(cmaf.Audio) || m.MediaName.Port.Value == 0 {
			continue
		}
		if _, opposite := m.Attribute(direction); opposite {
			wrongWay = true
			continue
		}
		switch {
		case kind == string(cmaf.Video) && hasCodec(m, "H264/90000"):
			o.video, o.sets = true, append(o.sets, parameterSets(m)...)
		case kind == string(cmaf.Video):
			foreign = true
		case hasCodec(m, "opus/48000/2"):
			o.audio = true
		}
	}
	switch {
	case !o.video && foreign:
		return offer{}, weir.Errorf(weir.Unsupported, "the offer has no H.264, the only video codec that weir supports over WebRTC; prefer H.264 in the codec preferences of the sender")
	case !o.video && !o.audio && wrongWay:
		return bad("all its media are %s", direction)
	case !o.video && !o.audio:
		return offer{}, weir.Errorf(weir.Unsupported, "the offer has neither H.264 nor Opus")
	}
	d.Attributes = slices.DeleteFunc(d.Attributes, isCandidate)
	clean, err := d.Marshal()
	if err != nil {
		return bad("it is not SDP")
	}
	o.text = string(clean)
	return o, nil
}

func isCandidate(a sdp.Attribute) bool {
	return slices.Contains([]string{"candidate", "end-of-candidates", "remote-candidates"}, a.Key)
}

func hasCodec(m *sdp.MediaDescription, codec string) bool {
	for _, a := range m.Attributes {
		if _, name, _ := strings.Cut(a.Value, " "); a.Key == "rtpmap" && strings.EqualFold(strings.TrimSpace(name), codec) {
			return true
		}
	}
	return false
}

// parameterSets returns the parameter sets of H.264 in the offer. Some encoders don't send them
// with key frames.
func parameterSets(m *sdp.MediaDescription) (sets [][]byte) {
	var total int
	for _, a := range m.Attributes {
		_, parameters, _ := strings.Cut(a.Value, " ")
		if a.Key != "fmtp" {
			continue
		}
		for one := range strings.SplitSeq(parameters, ";") {
			list, ok := strings.CutPrefix(strings.TrimSpace(one), "sprop-parameter-sets=")
			if !ok || len(sets) > 0 {
				continue
			}
			for text := range strings.SplitSeq(list, ",") {
				set, err := base64.StdEncoding.DecodeString(text)
				if total += len(set); err != nil || len(set) < 2 || total > maxSets {
					return nil
				}
				sets = append(sets, set)
			}
		}
	}
	return sets
}

// checkFragment checks an SDP fragment with ICE candidates, which are not used. It refuses an ICE
// restart: a user name fragment that is not that of the offer.
func checkFragment(text, offer string) error {
	if len(text) > MaxOffer {
		return weir.Errorf(weir.TooLarge, "the fragment is longer than %d bytes", MaxOffer)
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if line != "" && (len(line) < 2 || line[1] != '=') {
			return weir.Errorf(weir.Refused, "the fragment is not SDP")
		}
		if strings.HasPrefix(line, "a=ice-ufrag:") && !strings.Contains(offer, line+"\r\n") {
			return weir.Errorf(weir.Invalid, "ICE restarts are not supported; end the session and start a new one")
		}
	}
	return nil
}
