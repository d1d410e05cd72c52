package ingest

import (
	"strings"

	srt "github.com/datarhei/gosrt"
)

// srtRefusal is why an encoder is refused: a code for it, a sentence for the log.
type srtRefusal struct {
	code srt.RejectionReason
	why  string
}

func (r *srtRefusal) Error() string { return r.why }

// streamKeyIn returns the stream key in the streamid of an encoder: the key itself,
// publish:<streamKey>, or the form that SRT's own guidelines have,
// #!::r=<streamKey>,m=publish.
//
// What is wrong is told without the streamid, because there is a key in it.
func streamKeyIn(id string) (string, *srtRefusal) {
	const forms = "the streamid must be <streamKey>, publish:<streamKey> or #!::r=<streamKey>,m=publish"
	mode, key := "publish", id
	if list, ok := strings.CutPrefix(id, "#!::"); ok {
		key = ""
		for pair := range strings.SplitSeq(list, ",") {
			name, value, ok := strings.Cut(pair, "=")
			switch {
			case !ok:
				return "", &srtRefusal{srt.REJX_BAD_REQUEST, forms}
			case name == "r":
				key = value
			case name == "m":
				mode = value
			case name == "t" && value != "stream":
				return "", &srtRefusal{srt.REJX_NOTSUP_MEDIA, "only streams are taken, no files"}
			}
		}
	} else if before, after, ok := strings.Cut(id, ":"); ok {
		mode, key = before, after
	}
	switch {
	case strings.HasPrefix(id, "#!:{"):
		return "", &srtRefusal{srt.REJX_BAD_REQUEST, forms}
	case mode == "request" || mode == "read" || mode == "play" || mode == "bidirectional":
		return "", &srtRefusal{srt.REJX_BAD_MODE, "this address is for publishing; streams are watched over HLS"}
	case mode != "publish" || key == "":
		return "", &srtRefusal{srt.REJX_BAD_REQUEST, forms}
	}
	return key, nil
}
