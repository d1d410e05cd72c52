package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"

	"weir/internal/weir"
)

// Config is all that can be asked of weir: its settings, and below them its
// commands. It is read once, by parse, and never changed.
//
// A setting is one field here, one line in weir.yaml and one row in
// docs/settings.md; a test holds the three to each other. Its environment
// variable follows from its name. A setting of type [weir.Secret] can also be
// read from a file that WEIR_…_FILE names.
type Config struct {
	File string `name:"config" placeholder:"FILE" default:"weir.yaml" help:"Settings file; the default one may be missing."`

	Data       string      `group:"Storage" placeholder:"DIR" default:"./weir-data" help:"Folder of everything this node keeps."`
	Database   weir.Secret `group:"Storage" placeholder:"URL" default:"sqlite:<data>/weir.db" help:"Database: sqlite:PATH or postgres://…"`
	Storage    weir.Secret `group:"Storage" placeholder:"URL" default:"file:<data>/media" help:"Where media is kept: file:PATH or s3+https://KEY:SECRET@HOST/BUCKET."`
	SecretFile string      `group:"Storage" placeholder:"FILE" default:"<data>/secret" help:"File of the master secret."`
	MinFree    byteSize    `group:"Storage" placeholder:"SIZE" default:"auto" help:"Room that new media must leave on the disk; auto = 5 % of it, at least 2GiB."`
	MaxUpload  byteSize    `group:"Storage" placeholder:"SIZE" default:"30GiB" help:"Largest file that is taken."`

	HTTP            string         `name:"http" group:"Network" placeholder:"ADDR" default:":8080" help:"Address of the API and the account pages; empty = off."`
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
	AllowNetworks   []netip.Prefix `group:"Network" placeholder:"NET" default:"" help:"Private networks that callers' URLs may reach, as CIDRs."`
	IPFSGateways    []string       `name:"ipfs-gateways" group:"Network" placeholder:"HOST" default:"ipfs.io,dweb.link,w3s.link" help:"Gateways that ipfs:// inputs are read through, in order; a host name or a URL."`
	ArweaveGateways []string       `name:"arweave-gateways" group:"Network" placeholder:"HOST" default:"arweave.net" help:"Gateways that ar:// inputs are read through, in order; a host name or a URL."`

	Parts    []string      `name:"run" group:"Service" placeholder:"PART" default:"api,live,work" enum:"api,live,work" help:"Parts this node runs: api, live, work."`
	Workers  int           `group:"Service" placeholder:"N" default:"0" help:"Encoders that run at once on this node; 0 = one for each CPU core."`
	Sandbox  string        `group:"Service" placeholder:"MODE" default:"require" enum:"require,best,off" help:"How ffmpeg is locked in: require, best (as far as the kernel can) or off."`
	Drain    time.Duration `group:"Service" placeholder:"TIME" default:"30s" help:"How long requests and jobs may go on after SIGTERM."`
	LogLevel slog.Level    `group:"Service" placeholder:"LEVEL" default:"info" help:"Least level of log lines: debug, info, warn or error."`

	APIKey          weir.Secret   `name:"api-key" group:"Accounts and limits" placeholder:"KEY" default:"" help:"Key of the first account; empty = made on first start and printed once."`
	Signup          bool          `group:"Accounts and limits" default:"false" help:"Let anybody register an account."`
	RateLimit       int           `group:"Accounts and limits" placeholder:"N" default:"200" help:"Requests a second and key; 0 = no limit."`
	MaxPendingTasks int           `group:"Accounts and limits" placeholder:"N" default:"100" help:"Tasks that may wait, per account."`
	MaxRunningTasks int           `group:"Accounts and limits" placeholder:"N" default:"5" help:"Tasks that may run at once, per account."`
	DeleteGrace     time.Duration `group:"Accounts and limits" placeholder:"TIME" default:"7d" help:"How long a deleted asset can be restored."`
	SessionTimeout  time.Duration `group:"Accounts and limits" placeholder:"TIME" default:"60s" help:"How long a broadcast waits for an encoder that is gone."`
	UploadExpiry    time.Duration `group:"Accounts and limits" placeholder:"TIME" default:"24h" help:"How long an upload may take to arrive."`
	EventRetention  time.Duration `group:"Accounts and limits" placeholder:"TIME" default:"30d" help:"How long events and webhook logs are kept."`
	HealthRetention time.Duration `group:"Accounts and limits" placeholder:"TIME" default:"7d" help:"How long the health of streams is kept."`

	Serve     ServeCmd     `cmd:"" default:"1" help:"Run the service (the default)."`
	Key       KeyCmd       `cmd:"" help:"Manage API keys."`
	User      UserCmd      `cmd:"" help:"Manage accounts."`
	Stream    StreamCmd    `cmd:"" help:"Manage live streams."`
	Transcode TranscodeCmd `cmd:"" help:"Make HLS and MP4 of a video, without a server."`
	Backup    BackupCmd    `cmd:"" help:"Copy everything this node keeps, also while it runs."`
	Doctor    DoctorCmd    `cmd:"" help:"Check that this machine has what weir needs."`
	Version   VersionCmd   `cmd:"" help:"Print the version."`
}

// The parts that a node can run.
const (
	partAPI  = "api"
	partLive = "live"
	partWork = "work"
)

// ServeCmd is `weir serve`.
type ServeCmd struct{}

// KeyCmd is `weir key`.
type KeyCmd struct {
	Create KeyCreateCmd `cmd:"" help:"Make an API key and print it once."`
	List   KeyListCmd   `cmd:"" help:"List the API keys of an account, without their values."`
	Revoke KeyRevokeCmd `cmd:"" help:"Revoke an API key at once."`
}

// KeyCreateCmd is `weir key create NAME`.
type KeyCreateCmd struct {
	Name string `arg:"" help:"What the key is for."`
	User string `placeholder:"EMAIL" help:"Account the key belongs to; default: the first account."`
}

// KeyListCmd is `weir key list`.
type KeyListCmd struct {
	User string `placeholder:"EMAIL" help:"Account whose keys to list; default: all accounts."`
}

// KeyRevokeCmd is `weir key revoke ID`.
type KeyRevokeCmd struct {
	ID string `arg:"" help:"Id of the key, as weir key list shows it."`
}

// UserCmd is `weir user`.
type UserCmd struct {
	Create UserCreateCmd `cmd:"" help:"Make an account and print its set-password link."`
	Passwd UserPasswdCmd `cmd:"" help:"Print a one-time link that sets a new password."`
	List   UserListCmd   `cmd:"" help:"List the accounts."`
}

// UserCreateCmd is `weir user create EMAIL`.
type UserCreateCmd struct {
	Email string `arg:"" help:"E-mail address of the account."`
}

// UserPasswdCmd is `weir user passwd EMAIL`.
type UserPasswdCmd struct {
	Email string `arg:"" help:"E-mail address of the account."`
}

// UserListCmd is `weir user list`.
type UserListCmd struct{}

// BackupCmd is `weir backup DIR`.
type BackupCmd struct {
	Dir string `arg:"" help:"Folder to write to; it must be empty or not exist."`
}

// DoctorCmd is `weir doctor`.
type DoctorCmd struct{}

// VersionCmd is `weir version`.
type VersionCmd struct{}

// errHelp is what parse returns when it printed the help that was asked for.
var errHelp = errors.New("help was shown")

// parse reads the settings and the command from the arguments, the environment
// and the settings file; in this order, the first that has a setting wins. Help,
// when asked for, goes to stdout, and the error is then errHelp.
func parse(args []string, env func(string) (string, bool), stdout io.Writer) (*kong.Context, *Config, error) {
	cfg := &Config{}
	helped := false
	parser, err := kong.New(
		cfg,
		kong.Name("weir"),
		kong.Description("A video API in one binary. It speaks the Livepeer Studio API."),
		kong.Writers(stdout, io.Discard),
		kong.Exit(func(int) { helped = true }),
		kong.Resolvers(&sources{env: env}),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), textMapper(parseDuration)),
		kong.TypeMapper(reflect.TypeFor[netip.Prefix](), textMapper(parsePrefix)),
		kong.TypeMapper(reflect.TypeFor[slog.Level](), textMapper(parseLevel)),
		kong.TypeMapper(reflect.TypeFor[byteSize](), textMapper(parseSize)),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, WrapUpperBound: 100}),
		kong.ValueFormatter(helpText),
	)
	if err != nil {
		return nil, nil, err
	}
	ctx, err := parser.Parse(args)
	if helped {
		return nil, nil, errHelp
	}
	if err != nil {
		return nil, nil, err
	}
	if err := cfg.complete(); err != nil {
		return nil, nil, err
	}
	return ctx, cfg, nil
}

// Runs reports whether this node runs the part.
func (c *Config) Runs(part string) bool { return slices.Contains(c.Parts, part) }

// complete puts the data folder into the settings that speak of it, and checks
// what the types of the settings do not check by themselves. It reports all that
// is wrong at once.
func (c *Config) complete() error {
	c.Database = weir.Secret(strings.ReplaceAll(c.Database.Reveal(), "<data>", c.Data))
	c.Storage = weir.Secret(strings.ReplaceAll(c.Storage.Reveal(), "<data>", c.Data))
	c.SecretFile = strings.ReplaceAll(c.SecretFile, "<data>", c.Data)
	c.PublicURL = strings.TrimRight(c.PublicURL, "/")
	c.NodeURL = strings.TrimRight(c.NodeURL, "/")

	var problems []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	refuse(c.Data == "", "--data: must name a folder")
	refuse(c.SecretFile == "", "--secret-file: must name a file")
	// Never the URL itself: it carries a password.
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
	refuse(c.HTTP == "" && c.Runs(partAPI), "--http: is empty, but --run has api; give an address or leave api out of --run")
	refuse((c.TLSCert == "") != (c.TLSKey == ""), "--tls-cert and --tls-key: each needs the other")
	refuse(c.ACME != "" && c.TLSCert != "", "--acme and --tls-cert: use one of them; both say where the certificate comes from")
	refuse(c.ACME != "" && !isHostName(c.ACME), "--acme: %q is not a host name; write it like video.example.com", c.ACME)
	refuse(c.PublicURL != "" && !isBaseURL(c.PublicURL), "--public-url: %q is not a base URL; write it like https://video.example.com", c.PublicURL)
	refuse(c.NodeURL != "" && !isBaseURL(c.NodeURL), "--node-url: %q is not a base URL; write it like http://10.0.0.7:8080", c.NodeURL)

	refuse(len(c.Parts) == 0, "--run: must name at least one of api, live, work")
	refuse(c.Drain < 0, "--drain: must not be negative")
	refuse(strings.ContainsFunc(c.APIKey.Reveal(), func(r rune) bool { return r <= ' ' || r > '~' }),
		"--api-key: must be printable ASCII without blanks")
	refuse(c.RateLimit < 0, "--rate-limit: must not be negative; 0 turns the limit off")
	refuse(c.Workers < 0, "--workers: must not be negative; 0 is one for each CPU core")
	refuse(c.MaxUpload <= 0, "--max-upload: must be larger than nothing")
	refuse(c.MaxRunningTasks < 1, "--max-running-tasks: must be at least 1")
	refuse(c.DeleteGrace < 0, "--delete-grace: must not be negative")
	refuse(c.SessionTimeout < 0, "--session-timeout: must not be negative")
	refuse(c.UploadExpiry <= 0, "--upload-expiry: must be longer than nothing")
	refuse(c.MaxPendingTasks < 1, "--max-pending-tasks: must be at least 1")
	refuse(c.EventRetention <= 0, "--event-retention: must be longer than nothing")
	refuse(c.HealthRetention <= 0, "--health-retention: must be longer than nothing")
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

func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

func isHostName(s string) bool {
	_, err := netip.ParseAddr(s)
	return err != nil && strings.Contains(s, ".") && !strings.ContainsAny(s, ":/@?#* \t")
}

func isBaseURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" &&
		u.User == nil && u.RawQuery == "" && !u.ForceQuery && u.Fragment == ""
}

// byteSize is a number of bytes, written like 500MB or 30GiB.
// 0, written auto, is a size that follows from the machine.
type byteSize int64

func parseSize(s string) (byteSize, error) {
	if s == "auto" {
		return 0, nil
	}
	digits := strings.TrimRight(s, "KMGTiB")
	units := map[string]byteSize{
		"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
		"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	}
	unit, known := units[s[len(digits):]]
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || !known || n < 0 || n*float64(unit) > 1<<60 {
		return 0, fmt.Errorf("%q is not a size; write it like 500MB or 30GiB", s)
	}
	return byteSize(n * float64(unit)), nil
}

// parseDuration is time.ParseDuration with days: 7d, 1d12h.
func parseDuration(s string) (time.Duration, error) {
	days, rest, found := strings.Cut(s, "d")
	if !found {
		days, rest = "0", s
	}
	n, err := strconv.ParseUint(days, 10, 16)
	d := time.Duration(0)
	if err == nil && (rest != "" || !found) {
		d, err = time.ParseDuration(rest)
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not a length of time; write it like 30s, 24h or 7d", s)
	}
	return time.Duration(n)*24*time.Hour + d, nil
}

// parsePrefix reads a network, or a single address as the network of itself.
func parsePrefix(s string) (netip.Prefix, error) {
	s = strings.TrimSpace(s)
	if addr, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return prefix, fmt.Errorf("%q is not a network; write it like 10.0.0.0/8 or fd00::/8", s)
	}
	return prefix.Masked(), nil
}

func parseLevel(s string) (slog.Level, error) {
	var level slog.Level
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, s) || level.UnmarshalText([]byte(s)) != nil {
		return 0, fmt.Errorf("%q is not a level; use debug, info, warn or error", s)
	}
	return level, nil
}

// textMapper lets kong read a setting with the function.
func textMapper[T any](read func(string) (T, error)) kong.Mapper {
	return kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("value", &text); err != nil {
			return err
		}
		value, err := read(text)
		if err != nil {
			return err
		}
		target.Set(reflect.ValueOf(value))
		return nil
	})
}

// helpText adds the default and the environment variable to the help of a setting.
func helpText(value *kong.Value) string {
	if value.Flag == nil || value.Flag.Group == nil && value.Name != "config" {
		return value.Help
	}
	text := value.Help
	if value.Default != "" && !value.IsBool() {
		text += " Default: " + value.Default
	}
	return text + " ($" + envName(value.Name) + ")"
}

// envName returns the environment variable of a setting.
func envName(setting string) string {
	return "WEIR_" + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

// defaultFile is the settings file that is read when nobody names one.
const defaultFile = "weir.yaml"

// sources finds the settings that the command line does not have: in the
// environment, then in the settings file.
type sources struct {
	env  func(string) (string, bool)
	file map[string]string // of the settings file; nil = not read yet
	path string            // of the settings file
}

// Validate is asked by kong before anything is resolved; there is nothing to say yet.
func (s *sources) Validate(*kong.Application) error { return nil }

// setting is the text of a setting and the name of the place that has it.
type setting struct{ text, from string }

// Resolve returns the text of a setting, or nil to leave it at its default.
func (s *sources) Resolve(ctx *kong.Context, parent *kong.Path, flag *kong.Flag) (any, error) {
	if parent.App == nil || flag.Name == "help" {
		return nil, nil // options of a single command are no settings
	}
	found, err := s.fromEnvironment(flag)
	if found == nil && err == nil && flag.Name != "config" {
		found, err = s.fromFile(ctx, flag)
	}
	if found == nil || err != nil {
		return nil, err
	}
	// kong decodes it again; here it is done to say where a bad value came from.
	decode := &kong.DecodeContext{Value: flag.Value, Scan: kong.Scan().PushTyped(found.text, kong.FlagValueToken)}
	if err := flag.Mapper.Decode(decode, reflect.New(flag.Target.Type()).Elem()); err != nil {
		return nil, fmt.Errorf("from %s: %w", found.from, err)
	}
	return found.text, nil
}

func (s *sources) fromEnvironment(flag *kong.Flag) (*setting, error) {
	name := envName(flag.Name)
	text, ok := s.env(name)
	if flag.Target.Type() == reflect.TypeFor[weir.Secret]() {
		if path, _ := s.env(name + "_FILE"); path != "" {
			if text != "" {
				return nil, fmt.Errorf("%s and %s_FILE are both set; use one of them", name, name)
			}
			content, err := os.ReadFile(path)
			return &setting{strings.TrimSpace(string(content)), name + "_FILE"}, err
		}
	}
	// An empty variable is a value where emptiness means something, and otherwise
	// how a container's environment says "not set".
	kind := flag.Target.Kind()
	if !ok || text == "" && kind != reflect.String && kind != reflect.Slice {
		return nil, nil
	}
	return &setting{text, name}, nil
}

func (s *sources) fromFile(ctx *kong.Context, flag *kong.Flag) (*setting, error) {
	if s.file == nil {
		path, wanted := s.filePath(ctx)
		file, err := readSettings(path, ctx.Model.Flags)
		if errors.Is(err, fs.ErrNotExist) && !wanted {
			file, err = map[string]string{}, nil
		}
		if err != nil {
			return nil, err
		}
		s.file, s.path = file, path
	}
	text, ok := s.file[flag.Name]
	if !ok {
		return nil, nil
	}
	return &setting{text, s.path}, nil
}

// filePath returns the path of the settings file, and whether somebody asked for it.
func (s *sources) filePath(ctx *kong.Context) (path string, wanted bool) {
	for _, step := range ctx.Path {
		if step.Flag != nil && step.Flag.Name == "config" {
			return ctx.FlagValue(step.Flag).(string), true
		}
	}
	if path, _ := s.env(envName("config")); path != "" {
		return path, true
	}
	return defaultFile, false
}

// readSettings reads a settings file: one line a setting, named like its flag,
// with a single value or a list. A name that is no setting is refused, because a
// misspelt setting would otherwise silently stay at its default.
func readSettings(path string, flags []*kong.Flag) (map[string]string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(content, &values); err != nil {
		// Without the lines of the file around it: they may hold a secret.
		return nil, fmt.Errorf("%s: %s", path, yaml.FormatError(err, false, false))
	}
	file := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		known := slices.ContainsFunc(flags, func(f *kong.Flag) bool { return f.Name == name })
		if !known || name == "config" || name == "help" {
			return nil, fmt.Errorf("%s: unknown setting %q", path, name)
		}
		text, err := settingText(values[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, name, err)
		}
		file[name] = text
	}
	return file, nil
}

// settingText returns a value of the settings file as it would stand on the command line.
func settingText(value any) (string, error) {
	switch value := value.(type) {
	case nil:
		return "", nil
	case string, bool, int, int64, uint64, float64:
		return fmt.Sprint(value), nil
	case []any:
		texts := make([]string, len(value))
		for i, element := range value {
			text, err := settingText(element)
			if err != nil {
				return "", err
			}
			texts[i] = text
		}
		return strings.Join(texts, ","), nil
	default:
		return "", errors.New("must be a single value or a list")
	}
}
