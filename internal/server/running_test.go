package server

import (
	"testing"

	"weir/internal/config"
)

// TestFindRunning: commands find the node that serves from their data folder, and no other.
func TestFindRunning(t *testing.T) {
	dir := t.TempDir()
	usual := config.Config{Data: dir, HTTP: ":8080", RTMP: ":1935", SRT: ":8890", WebRTC: ":8189"}
	found := func(c config.Config) config.Config {
		FindRunning(&c)
		return c
	}
	if got := found(usual); got.HTTP != usual.HTTP {
		t.Errorf("without a file: %+v", got)
	}
	node := config.Config{
		Data: dir, HTTP: "127.0.0.1:0", RTMP: ":2935", RTMPS: ":2936", SRT: "", SRTPassphrase: "hush hush hush", WebRTC: ":2189",
		TLSCert: "c.pem", PublicURL: "https://video.example.com", IPFSURL: "https://ipfs.example.com",
	}
	noted, err := noteAddresses(&node, 9000)
	if err != nil {
		t.Fatal(err)
	}
	got := found(usual)
	if got.HTTP != "127.0.0.1:9000" || got.RTMP != ":2935" || got.RTMPS != ":2936" || got.SRT != "" || got.WebRTC != ":2189" || !got.Secure() ||
		got.PublicURL != node.PublicURL || got.IPFSURL != node.IPFSURL || got.SRTPassphrase != "PASSPHRASE" {
		t.Errorf("beside a node: %+v", got)
	}
	own := usual
	own.HTTP, own.RTMP, own.PublicURL = ":7000", "", "https://other.example.com"
	if got := found(own); got.HTTP != ":7000" || got.RTMP != "" || got.PublicURL != own.PublicURL || got.WebRTC != ":2189" {
		t.Errorf("with addresses of its own: %+v", got)
	}
	// The node ends, however: the lock goes with the process. Another port is not trusted with a token then.
	if err := noted.Close(); err != nil {
		t.Fatal(err)
	}
	if got := found(usual); got.HTTP != usual.HTTP {
		t.Errorf("after the end of the node: %+v", got)
	}
	node.HTTP, node.PublicURL = ":1", ""
	if noted, err = noteAddresses(&node, 9001); err != nil {
		t.Fatal(err)
	}
	defer noted.Close()
	if got := found(usual); got.HTTP != ":9001" || got.PublicURL != "" {
		t.Errorf("beside the next node: %+v", got)
	}
}
