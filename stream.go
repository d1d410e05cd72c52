package main

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// StreamCmd is `weir stream`.
type StreamCmd struct {
	Create StreamCreateCmd `cmd:"" help:"Make a stream and print where to send it and where to watch it."`
}

// StreamCreateCmd is `weir stream create NAME`.
type StreamCreateCmd struct {
	Name    string   `arg:"" help:"What the stream is called."`
	Record  bool     `help:"Keep every broadcast as an asset."`
	Profile []string `sep:"none" placeholder:"NAME[:BITRATE]" help:"A rendition, such as 720p:3M; may be given several times. none = only what the encoder sends. Default: 240p, 360p, 480p and 720p."`
	User    string   `placeholder:"EMAIL" help:"Account the stream belongs to; default: the first account."`
}

// Run is `weir stream create`.
func (c StreamCreateCmd) Run(ctx context.Context, cfg *Config) error {
	profiles, err := c.profiles()
	if err != nil {
		return err
	}
	st, err := openStore(ctx, cfg)
	if err != nil {
		return err
	}
	defer st.Close()
	u, err := findUser(ctx, st, c.User)
	if err != nil {
		return err
	}
	caller := &weir.Caller{UserID: u.ID, ProjectID: u.DefaultProjectID}
	stream, err := weir.NewStream{Name: c.Name, Record: c.Record, Profiles: profiles}.Stream(caller, time.Now())
	if err != nil {
		return err
	}
	if err := st.Tx(ctx, func(tx *store.Tx) error { return tx.CreateStream(ctx, &stream) }); err != nil {
		return err
	}
	base := commandBase(cfg)
	return show(os.Stdout, "OBS server  %s\nstream key  %s  (as good as a password)\nwatch       %s/play/%s\nid          %s\n",
		rtmpServer(cfg, base), stream.StreamKey.Reveal(), base, stream.PlaybackID, stream.ID)
}

// profiles reads the renditions; nil = the usual ones.
func (c StreamCreateCmd) profiles() (*[]weir.Profile, error) {
	if len(c.Profile) == 0 {
		return nil, nil
	}
	all := []weir.Profile{}
	for _, text := range c.Profile {
		if text == "none" {
			if len(c.Profile) > 1 {
				return nil, weir.Errorf(weir.Invalid, "--profile none: leaves no room for other renditions")
			}
			return &all, nil
		}
		p, err := parseProfile(text)
		if err != nil {
			return nil, err
		}
		p.FPS = new(0) // that of the source
		all = append(all, p)
	}
	return &all, nil
}

// commandBase is how a person reaches the service that runs with the settings.
func commandBase(cfg *Config) string {
	_, text, _ := net.SplitHostPort(cfg.HTTP)
	port, _ := strconv.Atoi(text)
	return localBase(cfg, port, cfg.TLSCert != "")
}

// rtmpServer is what an encoder is told as the server; base is where the API is.
func rtmpServer(cfg *Config, base string) string {
	return cmp.Or(rtmpAddress(cfg, base), "none: this weir takes no RTMP; give it an address with --rtmp")
}

// rtmpAddress is where encoders send to over RTMP; "" = it takes none.
func rtmpAddress(cfg *Config, base string) string {
	scheme, addr, usual := "rtmp", cfg.RTMP, "1935"
	if addr == "" {
		scheme, addr, usual = "rtmps", cfg.RTMPS, "443"
	}
	if addr == "" {
		return ""
	}
	host, port, _ := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
		if u, err := url.Parse(base); err == nil {
			host = u.Hostname()
		}
	}
	switch {
	case port != usual:
		host = net.JoinHostPort(host, port)
	case strings.Contains(host, ":"):
		host = "[" + host + "]"
	}
	return scheme + "://" + host + "/live"
}
