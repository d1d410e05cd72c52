package rtc

import (
	"encoding/base64"
	"strings"

	"github.com/pion/sdp/v3"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

const (
	// MaxOffer is how long an offer may be: browsers write some 10 KiB.
	MaxOffer = 64 << 10
	// maxSections is how many media an offer may have.
	maxSections = 16
	// maxSets is how many bytes of parameter sets an offer may bring.
	maxSets = 16 << 10
)

// offer is what a peer says it can do.
type offer struct {
	text         string // for pion
	video, audio bool   // with a codec that weir speaks
	sets         [][]byte
}

// readOffer reads an offer of somebody who sends, or wants to watch.
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
		return bad("it comes from an ICE-lite agent, and so is this server; one of the two must look for the other")
	}
	if len(d.MediaDescriptions) > maxSections {
		return bad("it has more than %d media", maxSections)
	}
	var o offer
	var foreign, wrongWay bool
	for _, m := range d.MediaDescriptions {
		// Where the peer says it is does not matter: it is answered where it comes from.
		m.Attributes = without(m.Attributes, "candidate", "end-of-candidates", "remote-candidates")
		kind := m.MediaName.Media
		if kind != string(cmaf.Video) && kind != string(cmaf.Audio) || m.MediaName.Port.Value == 0 {
			continue
		}
		if _, opposite := m.Attribute(direction); opposite {
			wrongWay = true
			continue
		}
		switch {
		case kind == string(cmaf.Video) && speaks(m, "H264/90000"):
			o.video, o.sets = true, append(o.sets, parameterSets(m)...)
		case kind == string(cmaf.Video):
			foreign = true
		case speaks(m, "opus/48000/2"):
			o.audio = true
		}
	}
	switch {
	case !o.video && foreign:
		return offer{}, weir.Errorf(weir.Unsupported, "the offer has no H.264, and weir takes no other pictures over WebRTC; prefer H.264 in the codec preferences of the sender")
	case !o.video && !o.audio && wrongWay:
		return bad("all its media are %s", direction)
	case !o.video && !o.audio:
		return offer{}, weir.Errorf(weir.Unsupported, "the offer has neither H.264 nor Opus")
	}
	d.Attributes = without(d.Attributes, "candidate", "end-of-candidates")
	clean, err := d.Marshal()
	if err != nil {
		return bad("it is not SDP")
	}
	o.text = string(clean)
	return o, nil
}

func without(attributes []sdp.Attribute, keys ...string) []sdp.Attribute {
	var kept []sdp.Attribute
next:
	for _, a := range attributes {
		for _, key := range keys {
			if a.Key == key {
				continue next
			}
		}
		kept = append(kept, a)
	}
	return kept
}

// speaks reports whether a medium has a codec.
func speaks(m *sdp.MediaDescription, codec string) bool {
	for _, a := range m.Attributes {
		if _, name, _ := strings.Cut(a.Value, " "); a.Key == "rtpmap" && strings.EqualFold(strings.TrimSpace(name), codec) {
			return true
		}
	}
	return false
}

// parameterSets returns those of H.264 that are in the offer: some encoders don't send
// them with the pictures.
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

// checkFragment reads what a peer says of its addresses after the offer. There is nothing
// to do with them; but that the peer starts anew can't be done.
func checkFragment(text, ufrag string) error {
	if len(text) > MaxOffer {
		return weir.Errorf(weir.TooLarge, "the fragment is longer than %d bytes", MaxOffer)
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if line != "" && (len(line) < 2 || line[1] != '=') {
			return weir.Errorf(weir.Refused, "the fragment is not SDP")
		}
		if now, ok := strings.CutPrefix(line, "a=ice-ufrag:"); ok && now != ufrag {
			return weir.Errorf(weir.Invalid, "ICE restarts are not possible here; end the session and make a new one")
		}
	}
	return nil
}

// ufragOf returns the name that a peer goes by.
func ufragOf(text string) string {
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "a=ice-ufrag:"); ok {
			return name
		}
	}
	return ""
}
