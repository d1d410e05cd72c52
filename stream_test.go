package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
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
		{"off", Config{HTTP: ":8080"}, "none: this weir takes no RTMP; give it an address with --rtmp"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := rtmpServer(&tt.cfg, commandBase(&tt.cfg)); got != tt.want {
				t.Errorf("server %q, want %q", got, tt.want)
			}
		})
	}
}

func TestStreamProfiles(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want *[]weir.Profile
		fail bool
	}{
		{name: "usual"},
		{name: "none", args: []string{"none"}, want: &[]weir.Profile{}},
		{name: "one", args: []string{"720p:3M"}, want: &[]weir.Profile{{Name: "720p", Width: 1280, Height: 720, Bitrate: 3_000_000, FPS: new(0)}}},
		{name: "none and one", args: []string{"none", "720p"}, fail: true},
		{name: "no size", args: []string{"large"}, fail: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := StreamCreateCmd{Profile: tt.args}.profiles()
			if (err != nil) != tt.fail {
				t.Fatalf("error %v, want one: %t", err, tt.fail)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" && !tt.fail {
				t.Errorf("profiles (-want +got):\n%s", diff)
			}
		})
	}
}
