package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIngests(t *testing.T) {
	all := []string{API, Live, Work}
	for _, tt := range []struct {
		name string
		cfg  Config
		want map[string]string
	}{
		{"usual", Config{Parts: all, SRT: ":8890", WebRTC: ":8189"}, map[string]string{
			"srt": "srt://weir.test:8890?streamid=", "whip": "http://weir.test:8080/webrtc/",
		}},
		{"own addresses", Config{Parts: all, RTMPS: "[2001:db8::1]:1936", SRT: "192.0.2.1:9000", SRTPassphrase: "hush hush hush"}, map[string]string{
			"rtmps": "rtmps://[2001:db8::1]:1936/live/", "srt": "srt://192.0.2.1:9000?passphrase=PASSPHRASE&streamid=",
		}},
		{"another node has the encoders", Config{Parts: []string{API}, SRT: ":8890", WebRTC: ":8189"}, map[string]string{}},
	} {
		if diff := cmp.Diff(tt.want, tt.cfg.Ingests("http://weir.test:8080")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
