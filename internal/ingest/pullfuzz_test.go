package ingest

import (
	"context"
	"testing"

	"weir/internal/cmaf"
	"weir/internal/live"
	"weir/internal/weir"
)

// nothing is a publisher that drops everything.
type nothing struct{}

func (nothing) StreamID() string                              { return "stream-1" }
func (nothing) Files() int                                    { return 1 }
func (nothing) SetTracks(context.Context, []cmaf.Track) error { return nil }
func (nothing) Done() <-chan struct{}                         { return nil }
func (nothing) Close(bool)                                    {}
func (nothing) SetIssue(string)                               {}
func (nothing) Write(live.Frame) error                        { return nil }

// FuzzPlaylist reads playlists that may be anything.
func FuzzPlaylist(f *testing.F) {
	for _, text := range []string{
		"#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:7\n#EXT-X-MAP:URI=\"i.mp4\",BYTERANGE=\"10@0\"\n#EXTINF:2.0,\n#EXT-X-BYTERANGE:100@10\na\n#EXT-X-DISCONTINUITY\n#EXTINF:1,x\n#EXT-X-BYTERANGE:5\na\n#EXT-X-ENDLIST\n",
		"#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",URI=\"s\",DEFAULT=YES\n#EXT-X-STREAM-INF:BANDWIDTH=5,CODECS=\"avc1.1,mp4a\",AUDIO=\"a\"\nv\n",
		"#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x1\n#EXT-X-GAP\n#EXTINF:3\nb\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		master, list, err := readPlaylist(text)
		if err != nil {
			if weir.KindOf(err) != weir.Invalid {
				t.Errorf("an error that is not about the playlist: %v", err)
			}
			return
		}
		if master != nil {
			bestVariant(master)
			return
		}
		for i, s := range list.Segments {
			if s.Number < 0 || s.Duration < 0 || s.Offset < 0 || s.Length < 0 || i > 0 && (s.Breaks < list.Segments[i-1].Breaks || s.Number <= list.Segments[i-1].Number) {
				t.Fatalf("segment %+v", s)
			}
		}
	})
}
