// Package config has the settings of weir and their checks.
//
// [Config] is the one struct of all settings. [Parse] fills it from the command line, the
// environment and the settings file; in this order, the first that has a setting wins. What
// follows from several settings at once, such as the URL of the service, is in address.go.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/weir"
)

// Config has all settings of a node. Parse fills it; it does not change afterwards.
//
// A setting is one field here, one line in weir.yaml and one row in docs/settings.md; a test
// compares the three. The name of its environment variable follows from its own name. A
// setting of type [weir.Secret] can also be read from a file, which WEIR_…_FILE names.
type Config struct {
	File string `name:"config" placeholder:"FILE" default:"weir.yaml" help:"Settings file; the default one may be missing."`

	Data        string        `group:"Storage" placeholder:"DIR" default:"./weir-data" help:"Folder of everything this node keeps."`
	Database    weir.Secret   `group:"Storage" placeholder:"URL" default:"sqlite:<data>/weir.db" help:"Database: sqlite:PATH or postgres://…"`
	Storage     weir.Secret   `group:"Storage" placeholder:"URL" default:"file:<data>/media" help:"Where media is kept: file:PATH or s3+https://KEY:SECRET@HOST/BUCKET."`
	SecretFile  string        `group:"Storage" placeholder:"FILE" default:"<data>/secret" help:"File of the master secret."`
	MinFree     int64         `type:"size" group:"Storage" placeholder:"SIZE" default:"auto" help:"Room that new media must leave on the disk; auto = 5 % of it, at least 2GiB."`
	MaxUpload   int64         `type:"size" group:"Storage" placeholder:"SIZE" default:"30GiB" help:"Largest file that is taken."`
	MaxDuration time.Duration `group:"Storage" placeholder:"TIME" default:"24h" help:"Longest file that is taken."`

	HTTP            string         `name:"http" group:"Network" placeholder:"ADDR" default:":8080" help:"Address of the API and the pages; empty = off."`
	RTMP            string         `name:"rtmp" group:"Network" placeholder:"ADDR" default:":1935" help:"Address that encoders send to over RTMP, as rtmp://HOST/live/KEY; empty = off."`
	RTMPS           string         `name:"rtmps" group:"Network" placeholder:"ADDR" default:"" help:"The same over TLS, with the certificate of HTTPS; empty = off."`
	SRT             string         `name:"srt" group:"Network" placeholder:"ADDR" default:":8890" help:"Address that encoders send to over SRT, with the stream key as the streamid; empty = off."`
	SRTPassphrase   weir.Secret    `name:"srt-passphrase" group:"Network" placeholder:"TEXT" default:"" help:"What encoders must encrypt SRT with; empty = they must not encrypt."`
	WebRTC          string         `name:"webrtc" group:"Network" placeholder:"ADDR" default:":8189" help:"Address of WebRTC, UDP and TCP, for browsers that send (WHIP) and watch (WHEP); empty = off."`
	WebRTCHost      []string       `name:"webrtc-host" group:"Network" placeholder:"HOST" default:"" help:"Names or addresses that browsers reach it at; empty = those of this machine."`
	Ops             string         `group:"Network" placeholder:"ADDR" default:"127.0.0.1:9090" help:"Address of metrics and pprof, not for the public; empty = off."`
	TLSCert         string         `name:"tls-cert" group:"Network" placeholder:"FILE" default:"" help:"Certificate chain (PEM) that turns on HTTPS."`
	TLSKey          string         `name:"tls-key" group:"Network" placeholder:"FILE" default:"" help:"Private key (PEM) of the certificate."`
	ACME            string         `name:"acme" group:"Network" placeholder:"HOST" default:"" help:"Host name for which to get a certificate from Let's Encrypt."`
	PublicURL       string         `name:"public-url" group:"Network" placeholder:"URL" default:"" help:"Base of the URLs handed out; empty = taken from the request."`
	NodeURL         string         `name:"node-url" group:"Network" placeholder:"URL" default:"" help:"How other nodes reach this one over HTTP; empty = taken from --http."`
	TrustedProxies  []netip.Prefix `group:"Network" placeholder:"NET" default:"" help:"Networks whose X-Forwarded-* headers count."`
	CacheSecret     weir.Secret    `name:"cache-secret" group:"Network" placeholder:"TEXT" default:"" help:"What a cache or CDN proves itself with, to keep content that is not public; empty = it keeps none."`
	CacheAdmission  time.Duration  `group:"Network" placeholder:"TIME" default:"5s" help:"How long such a cache may keep that a viewer may play."`
	AllowNetworks   []netip.Prefix `group:"Network" placeholder:"NET" default:"" help:"Private networks that callers' URLs may reach, as CIDRs."`
	IPFS            weir.Secret    `name:"ipfs" group:"Network" placeholder:"WHERE" default:"local" help:"Where outputs on IPFS go: local, kubo:URL of an IPFS node's RPC, or upload:URL#DID of a UCAN upload service."`
	IPFSURL         string         `name:"ipfs-url" group:"Network" placeholder:"URL" default:"" help:"Base of the addresses of uploads to IPFS, on a host of their own; empty = that of everything else."`
	IPFSGateways    []string       `name:"ipfs-gateways" group:"Network" placeholder:"HOST" default:"ipfs.io,dweb.link,w3s.link" help:"Gateways that ipfs:// inputs are read through, in order; a host name or a URL."`
	ArweaveGateways []string       `name:"arweave-gateways" group:"Network" placeholder:"HOST" default:"arweave.net" help:"Gateways that ar:// inputs are read through, in order; a host name or a URL."`

	Parts         []string      `name:"run" group:"Service" placeholder:"PART" default:"api,live,work" enum:"api,live,work" help:"Parts this node runs: api, live, work."`
	Workers       int           `group:"Service" placeholder:"N" default:"0" help:"Encoders that run at once on this node; 0 = one for each CPU core."`
	Sandbox       string        `group:"Service" placeholder:"MODE" default:"require" enum:"strict,require,best,off" help:"How ffmpeg is locked in: strict (also to its files), require, best (as far as the kernel can) or off."`
	Drain         time.Duration `group:"Service" placeholder:"TIME" default:"30s" help:"How long requests and jobs may go on after SIGTERM."`
	Stale         time.Duration `group:"Service" placeholder:"TIME" default:"15m" help:"How long viewers get what this node knows while the database does not respond; 0 = not at all."`
	C2PAKey       string        `name:"c2pa-key" group:"Service" placeholder:"FILE" default:"" help:"Private key (PEM) that signs outputs; empty = one made on first start, which nobody else vouches for."`
	C2PACert      string        `name:"c2pa-cert" group:"Service" placeholder:"FILE" default:"" help:"Certificate chain (PEM) of the key, the signer's first."`
	C2PATimestamp string        `name:"c2pa-timestamp" group:"Service" placeholder:"URL" default:"" help:"Time stamp service (RFC 3161) for signatures; empty = none, and they are valid as long as the certificate."`
	LogLevel      slog.Level    `group:"Service" placeholder:"LEVEL" default:"info" help:"Least level of log lines: debug, info, warn or error."`

	APIKey           weir.Secret   `name:"api-key" group:"Accounts and limits" placeholder:"KEY" default:"" help:"Key of the first account; empty = made on first start and printed once."`
	Signup           bool          `group:"Accounts and limits" default:"false" help:"Let anybody register an account."`
	PublicClips      bool          `group:"Accounts and limits" default:"false" help:"Let viewers make clips of what they may play; a stream can say otherwise."`
	PartDuration     time.Duration `group:"Accounts and limits" placeholder:"TIME" default:"200ms" help:"Duration of the parts of live streams; 0 = no parts; a stream can say otherwise."`
	RateLimit        int           `group:"Accounts and limits" placeholder:"N" default:"200" help:"Requests a second and key; 0 = no limit."`
	AccountRateLimit int           `group:"Accounts and limits" placeholder:"N" default:"1000" help:"Requests a second of all keys of an account; 0 = no limit."`
	MaxPendingTasks  int           `group:"Accounts and limits" placeholder:"N" default:"100" help:"Tasks that may wait, per account."`
	MaxRunningTasks  int           `group:"Accounts and limits" placeholder:"N" default:"5" help:"Tasks that may run at once, per account."`
	DeleteGrace      time.Duration `group:"Accounts and limits" placeholder:"TIME" default:"7d" help:"How long a deleted asset or account can be restored."`
	SessionTimeout   time.Duration `group:"Accounts and limits" placeholder:"TIME" default:"60s" help:"How long a broadcast waits for an encoder that is gone."`
	UploadExpiry     time.Duration `group:"Accounts and limits" placeholder:"TIME" default:"24h" help:"How long an upload may take to arrive."`
	EventRetention   time.Duration `group:"Accounts and limits" placeholder:"TIME" default:"30d" help:"How long events and webhook logs are kept."`
	HealthRetention  time.Duration `group:"Accounts and limits" placeholder:"TIME" default:"7d" help:"How long the health of streams is kept."`
	ViewRetention    time.Duration `group:"Accounts and limits" placeholder:"TIME" default:"30d" help:"How long single views are kept, at least 1h; their hourly sums stay."`

	EdgeCache        int64 `type:"size" group:"Accounts and limits" placeholder:"SIZE" default:"64MiB" help:"Memory for live streams of other nodes that are watched on this one."`
	MaxWebRTCViewers int   `name:"max-webrtc-viewers" group:"Accounts and limits" placeholder:"N" default:"500" help:"Viewers over WebRTC of the streams of this node."`

	MaxConnections           int `group:"Accounts and limits" placeholder:"N" default:"0" help:"Connections of clients, without encoders on air; 0 = as many as the limit of open files allows."`
	MaxConnectionsPerAddress int `group:"Accounts and limits" placeholder:"N" default:"0" help:"HTTP connections without a valid key from one address; 0 = half of all."`
}

// The parts that a node can run.
const (
	API  = "api"
	Live = "live"
	Work = "work"
)

// Runs reports whether this node runs the part.
func (c *Config) Runs(part string) bool { return slices.Contains(c.Parts, part) }

// Secure reports whether this node serves HTTPS.
func (c *Config) Secure() bool { return c.TLSCert != "" || c.ACME != "" }

// SQLite returns the path of the database, if it is SQLite.
func (c *Config) SQLite() (path string, ok bool) {
	return strings.CutPrefix(c.Database.Reveal(), "sqlite:")
}

// MediaDir returns the folder of the media, if it is on a disk of this machine.
func (c *Config) MediaDir() (dir string, ok bool) {
	dir, ok = strings.CutPrefix(c.Storage.Reveal(), "file:")
	return strings.TrimPrefix(dir, "//"), ok
}

// IPFSRemote is where outputs on IPFS go.
type IPFSRemote struct {
	Kind string // weir.IPFSLocal, weir.IPFSKubo or weir.IPFSUCAN
	URL  string // of the other two
	DID  string // of the upload service
}

// IPFSRemote returns where outputs on IPFS go.
func (c *Config) IPFSRemote() (r IPFSRemote, err error) {
	r.Kind, r.URL, _ = strings.Cut(c.IPFS.Reveal(), ":")
	switch {
	case r.Kind == weir.IPFSLocal && r.URL == "":
		return r, nil
	case r.Kind == weir.IPFSKubo && isServiceURL(r.URL):
		return r, nil
	case r.Kind == weir.IPFSUCAN:
		r.URL, r.DID, _ = strings.Cut(r.URL, "#")
		if isServiceURL(r.URL) && strings.HasPrefix(r.DID, "did:") {
			return r, nil
		}
		return r, errors.New("must name the URL and the DID of the upload service, like upload:https://up.example.com#did:web:up.example.com")
	case r.Kind == weir.IPFSKubo:
		return r, errors.New("must name the URL of the RPC of the IPFS node, like kubo:http://127.0.0.1:5001")
	}
	return r, errors.New("must be local, kubo:URL or upload:URL#DID")
}

// LiveDir returns the folder of the live sessions' files.
func (c *Config) LiveDir() string { return filepath.Join(c.Data, "live") }

// WorkDir returns the folder of unfinished tasks' files.
func (c *Config) WorkDir() string { return filepath.Join(c.Data, "work") }

// SpeedFile returns the file that keeps the measured encoding speed of this machine.
func (c *Config) SpeedFile() string { return filepath.Join(c.Data, "speed.json") }

// complete puts the data folder into the settings that refer to it.
func (c *Config) complete() {
	c.Database = weir.Secret(strings.ReplaceAll(c.Database.Reveal(), "<data>", c.Data))
	c.Storage = weir.Secret(strings.ReplaceAll(c.Storage.Reveal(), "<data>", c.Data))
	c.SecretFile = strings.ReplaceAll(c.SecretFile, "<data>", c.Data)
	c.PublicURL = strings.TrimRight(c.PublicURL, "/")
	c.NodeURL = strings.TrimRight(c.NodeURL, "/")
	c.IPFSURL = strings.TrimRight(c.IPFSURL, "/")
}

// check returns the errors of settings that their types do not exclude.
func (c *Config) check() error {
	var problems []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	refuse(c.Data == "", "--data: must name a folder")
	refuse(c.SecretFile == "", "--secret-file: must name a file")
	// Never the URL itself: it has a password in it.
	scheme, rest, _ := strings.Cut(c.Database.Reveal(), ":")
	refuse(!slices.Contains([]string{"sqlite", "postgres", "postgresql"}, scheme) || rest == "",
		"--database: must be sqlite:PATH or postgres://USER:PASSWORD@HOST/NAME")

	scheme, rest, _ = strings.Cut(c.Storage.Reveal(), ":")
	refuse(!slices.Contains([]string{"file", "s3", "s3+http", "s3+https"}, scheme) || rest == "",
		"--storage: must be file:PATH or s3+https://KEY:SECRET@HOST/BUCKET, with KEY and SECRET percent-encoded")

	refuse(badAddress(c.HTTP), "--http: %q is not an address; write it like :8080 or 127.0.0.1:8080", c.HTTP)
	refuse(badAddress(c.RTMP), "--rtmp: %q is not an address; write it like :1935", c.RTMP)
	refuse(badAddress(c.RTMPS), "--rtmps: %q is not an address; write it like :1936", c.RTMPS)
	refuse(c.RTMPS != "" && c.TLSCert == "" && c.ACME == "", "--rtmps: needs a certificate; give --tls-cert and --tls-key, or --acme")
	refuse(badAddress(c.SRT), "--srt: %q is not an address; write it like :8890", c.SRT)
	// Never the passphrase itself.
	refuse(c.SRTPassphrase != "" && (len(c.SRTPassphrase) < 10 || len(c.SRTPassphrase) > 80), "--srt-passphrase: must have 10 to 80 bytes")
	refuse(badAddress(c.WebRTC), "--webrtc: %q is not an address; write it like :8189", c.WebRTC)
	for _, host := range c.WebRTCHost {
		refuse(strings.ContainsAny(host, ":/@ ") && !isAddress(host), "--webrtc-host: %q is neither a host name nor an address; write it like video.example.com or 203.0.113.7, without a port", host)
	}
	refuse(badAddress(c.Ops), "--ops: %q is not an address; write it like 127.0.0.1:9090", c.Ops)
	refuse(c.HTTP != "" && c.HTTP == c.Ops && !strings.HasSuffix(c.HTTP, ":0"),
		"--ops: must differ from --http, because metrics and pprof are not for the public")
	refuse(c.HTTP == "" && c.Runs(API), "--http: is empty, but --run has api; give an address or leave api out of --run")
	refuse((c.TLSCert == "") != (c.TLSKey == ""), "--tls-cert and --tls-key: each needs the other")
	refuse(c.ACME != "" && c.TLSCert != "", "--acme and --tls-cert: use one of them; both say where the certificate comes from")
	refuse(c.ACME != "" && !isHostName(c.ACME), "--acme: %q is not a host name; write it like video.example.com", c.ACME)
	refuse(c.PublicURL != "" && !isBaseURL(c.PublicURL), "--public-url: %q is not a base URL; write it like https://video.example.com", c.PublicURL)
	refuse(c.NodeURL != "" && !isBaseURL(c.NodeURL), "--node-url: %q is not a base URL; write it like http://10.0.0.7:8080", c.NodeURL)

	_, err := c.IPFSRemote()
	refuse(err != nil, "--ipfs: %v", err) // never the URL itself: it can have a password in it
	refuse(c.IPFSURL != "" && !isBaseURL(c.IPFSURL), "--ipfs-url: %q is not a base URL; write it like https://ipfs.example.com", c.IPFSURL)
	// Not only another port: cookies belong to all ports of a host.
	refuse(c.IPFSURL != "" && strings.EqualFold(hostOf(c.IPFSURL), hostOf(c.publicBase())),
		"--ipfs-url: must have another host than the API and the pages have, because what is uploaded must not be able to act as one of them")
	refuse((c.C2PAKey == "") != (c.C2PACert == ""), "--c2pa-key and --c2pa-cert: each needs the other")
	refuse(c.C2PATimestamp != "" && !isBaseURL(c.C2PATimestamp), "--c2pa-timestamp: %q is not a URL; write it like http://timestamp.example.com", c.C2PATimestamp)

	refuse(len(c.Parts) == 0, "--run: must name at least one of api, live, work")
	refuse(c.Drain < 0, "--drain: must not be negative")
	refuse(c.Stale < 0, "--stale: must not be negative; 0 turns it off")
	refuse(strings.ContainsFunc(c.APIKey.Reveal(), func(r rune) bool { return r <= ' ' || r > '~' }),
		"--api-key: must be printable ASCII without blanks")
	refuse(c.MaxConnections < 0, "--max-connections: must not be negative; 0 is as many as possible")
	refuse(c.MaxConnectionsPerAddress < 0, "--max-connections-per-address: must not be negative; 0 is half of all")
	// Never the secret itself.
	refuse(c.CacheSecret != "" && !isCacheSecret(c.CacheSecret.Reveal()), "--cache-secret: must have 32 to 200 letters and digits; make one with: openssl rand -hex 32")
	refuse(c.CacheAdmission < time.Second || c.CacheAdmission > 10*time.Minute, "--cache-admission: must be from 1s to 10m")
	refuse(c.EdgeCache < 4<<20, "--edge-cache: must be at least 4MiB")
	refuse(c.MaxWebRTCViewers < 1, "--max-webrtc-viewers: must be at least 1; --webrtc '' turns WebRTC off")
	refuse(c.RateLimit < 0, "--rate-limit: must not be negative; 0 turns the limit off")
	refuse(c.AccountRateLimit < 0, "--account-rate-limit: must not be negative; 0 turns the limit off")
	refuse(c.Workers < 0, "--workers: must not be negative; 0 is one for each CPU core")
	refuse(c.MaxUpload <= 0, "--max-upload: must be greater than 0")
	refuse(c.MaxDuration <= 0, "--max-duration: must be greater than 0")
	refuse(c.MaxRunningTasks < 1, "--max-running-tasks: must be at least 1")
	refuse(c.DeleteGrace < 0, "--delete-grace: must not be negative")
	refuse(!weir.ValidPartDuration(c.PartDuration.Seconds()), "--part-duration: must be 0, for no parts, or from 200ms to 1s")
	refuse(c.SessionTimeout < 0, "--session-timeout: must not be negative")
	refuse(c.UploadExpiry <= 0, "--upload-expiry: must be greater than 0")
	refuse(c.MaxPendingTasks < 1, "--max-pending-tasks: must be at least 1")
	refuse(c.EventRetention <= 0, "--event-retention: must be greater than 0")
	refuse(c.HealthRetention <= 0, "--health-retention: must be greater than 0")
	refuse(c.ViewRetention < time.Hour, "--view-retention: must be at least 1h, because viewers who return soon continue their view")
	return errors.Join(problems...)
}

func badAddress(addr string) bool {
	if addr == "" {
		return false
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return true
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err != nil
}

// isCacheSecret reports whether s can't be guessed, and fits into the settings of any cache as it is.
func isCacheSecret(s string) bool {
	other := func(r rune) bool { return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }
	return len(s) >= 32 && len(s) <= 200 && !strings.ContainsFunc(s, other)
}

func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

func isHostName(s string) bool {
	return !isAddress(s) && strings.Contains(s, ".") && !strings.ContainsAny(s, ":/@?#* \t")
}

// isServiceURL reports whether s is the URL of a service of the operator, which may have a password in it.
func isServiceURL(s string) bool {
	u, err := url.Parse(s)
	if err == nil {
		u.User = nil
	}
	return err == nil && isBaseURL(u.String())
}

func isBaseURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" &&
		u.User == nil && u.RawQuery == "" && !u.ForceQuery && u.Fragment == ""
}
