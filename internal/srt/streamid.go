package srt

import (
	"strings"

	gosrt "github.com/datarhei/gosrt"
)

// streamKey returns the stream key in a stream id, which has one of three forms: the key itself,
// publish:<streamKey>, or that of SRT's guidelines, #!::r=<streamKey>,m=publish. The error does not
// contain the stream id, which is secret.
func streamKey(id string) (string, error) {
	const forms = "the streamid must be <streamKey>, publish:<streamKey> or #!::r=<streamKey>,m=publish"
	mode, key := "publish", id
	if list, ok := strings.CutPrefix(id, "#!::"); ok {
		key = ""
		for pair := range strings.SplitSeq(list, ",") {
			name, value, ok := strings.Cut(pair, "=")
			switch {
			case !ok:
				return "", &refusal{gosrt.REJX_BAD_REQUEST, forms}
			case name == "r":
				key = value
			case name == "m":
				mode = value
			case name == "t" && value != "stream":
				return "", &refusal{gosrt.REJX_NOTSUP_MEDIA, "only streams are taken, no files"}
			}
		}
	} else if before, after, ok := strings.Cut(id, ":"); ok {
		mode, key = before, after
	}
	switch {
	case strings.HasPrefix(id, "#!:{"):
		return "", &refusal{gosrt.REJX_BAD_REQUEST, forms}
	case mode == "request" || mode == "read" || mode == "play" || mode == "bidirectional":
		return "", &refusal{gosrt.REJX_BAD_MODE, "this address is for publishing; viewers use HLS or WebRTC"}
	case mode != "publish" || key == "":
		return "", &refusal{gosrt.REJX_BAD_REQUEST, forms}
	}
	return key, nil
}
