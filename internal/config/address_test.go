package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRTMPServer(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"usual", Config{HTTP: ":8080", RTMP: ":1935"}, "rtmp://localhost/live"},
		{"other port", Config{HTTP: ":8080", RTMP: ":1936"}, "rtmp://localhost:1936/live"},
		{"public name", Config{HTTP: ":8080", RTMP: "0.0.0.0:1935", PublicURL: "https://video.example.com:8443/weir"}, "rtmp://video.example.com/live"},
		{"own address", Config{HTTP: ":8080", RTMP: "192.0.2.1:1935"}, "rtmp://192.0.2.1/live"},
		{"only TLS", Config{HTTP: ":8080", RTMPS: ":443", ACME: "video.example.com"}, "rtmps://video.example.com/live"},
		{"own address of IPv6", Config{HTTP: ":8080", RTMP: "[2001:db8::1]:1935"}, "rtmp://[2001:db8::1]/live"},
		{"off", Config{HTTP: ":8080"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.cfg.RTMPServer(tt.cfg.LocalURL(0)); got != tt.want {
				t.Errorf("server %q, want %q", got, tt.want)
			}
		})
	}
}

func TestIngestAddresses(t *testing.T) {
	all := []string{API, Live, Work}
	for _, tt := range []struct {
		name string
		cfg  Config
		want []IngestAddress
	}{
		{"usual", Config{Parts: all, HTTP: ":8080", RTMP: ":1935", SRT: ":8890", WebRTC: ":8189"}, []IngestAddress{
			{"RTMP", "rtmp://localhost/live/KEY"}, {"SRT", "srt://localhost:8890?streamid=KEY"}, {"WHIP", "http://localhost:8080/webrtc/KEY"},
		}},
		{"public", Config{Parts: all, HTTP: ":443", RTMP: ":1935", RTMPS: ":1936", SRT: ":8890", SRTPassphrase: "hush hush hush", WebRTC: ":8189", PublicURL: "https://video.example.com/weir"}, []IngestAddress{
			{"RTMP", "rtmp://video.example.com/live/KEY"},
			{"RTMPS", "rtmps://video.example.com:1936/live/KEY"},
			{"SRT", "srt://video.example.com:8890?passphrase=PASSPHRASE&streamid=KEY"},
			{"WHIP", "https://video.example.com/weir/webrtc/KEY"},
		}},
		{"off", Config{Parts: all, HTTP: ":8080"}, nil},
		{"another node has the encoders", Config{Parts: []string{API, Work}, HTTP: ":8080", RTMP: ":1935", SRT: ":8890", WebRTC: ":8189"}, nil},
		{"another node has the API", Config{Parts: []string{Live}, HTTP: ":8080", SRT: "[::1]:8890", WebRTC: ":8189"}, []IngestAddress{{"SRT", "srt://[::1]:8890?streamid=KEY"}}},
	} {
		if diff := cmp.Diff(tt.want, tt.cfg.IngestAddresses(tt.cfg.LocalURL(0), "KEY")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestURLs(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		cfg                  Config
		local, events, peers string // with the address of this machine as HERE
	}{
		{
			"all addresses",
			Config{HTTP: ":8080"},
			"http://localhost:9000", "http://HERE:8080", "http://HERE:9000",
		},
		{
			"one address",
			Config{HTTP: "[::1]:8080", TLSCert: "c", TLSKey: "k"},
			"https://[::1]:9000", "https://[::1]:8080", "https://[::1]:9000",
		},
		{
			"ACME",
			Config{HTTP: "0.0.0.0:443", ACME: "video.example.com"},
			"https://video.example.com", "https://video.example.com", "https://HERE:9000",
		},
		{
			"public URL",
			Config{HTTP: ":8080", PublicURL: "https://a.example/weir", NodeURL: "http://10.0.0.7:80"},
			"https://a.example/weir", "https://a.example/weir", "http://10.0.0.7:80",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			here := machineAddress()
			if strings.Contains(here, ":") {
				here = "[" + here + "]"
			}
			want := strings.NewReplacer("HERE", here)
			for _, url := range []struct{ got, want string }{
				{tt.cfg.LocalURL(9000), tt.local},
				{tt.cfg.EventURL(), tt.events},
				{tt.cfg.PeerURL(9000), tt.peers},
			} {
				if url.got != want.Replace(url.want) {
					t.Errorf("got %s, want %s", url.got, want.Replace(url.want))
				}
			}
		})
	}
}

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
