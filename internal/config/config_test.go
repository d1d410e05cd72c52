package config

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

// commands is a command line with one command.
type commands struct {
	Config

	Serve struct{} `cmd:"" default:"1"`
}

// parseWith parses in an empty folder, with no environment but env.
func parseWith(t *testing.T, env map[string]string, args ...string) (*Config, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	return parseHere(t, env, args...)
}

func parseHere(t *testing.T, env map[string]string, args ...string) (*Config, error) {
	t.Helper()
	lookup := func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
	var c commands
	_, err := Parse(&c, &c.Config, args, lookup, t.Output())
	return &c.Config, err
}

func writeFile(t *testing.T, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaults(t *testing.T) {
	got, err := parseWith(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		File:       "weir.yaml",
		Data:       "./weir-data",
		Database:   "sqlite:./weir-data/weir.db",
		Storage:    "file:./weir-data/media",
		SecretFile: "./weir-data/secret",
		MaxUpload:  30 << 30,

		MaxDuration: 24 * time.Hour,

		IPFS:            "local",
		IPFSGateways:    []string{"ipfs.io", "dweb.link", "w3s.link"},
		ArweaveGateways: []string{"arweave.net"},
		Sandbox:         "require",
		MaxRunningTasks: 5,
		DeleteGrace:     7 * 24 * time.Hour,
		SessionTimeout:  time.Minute,
		UploadExpiry:    24 * time.Hour,

		HTTP:             ":8080",
		RTMP:             ":1935",
		SRT:              ":8890",
		WebRTC:           ":8189",
		Ops:              "127.0.0.1:9090",
		Parts:            []string{"api", "live", "work"},
		Drain:            30 * time.Second,
		Stale:            15 * time.Minute,
		LogLevel:         slog.LevelInfo,
		PartDuration:     200 * time.Millisecond,
		EdgeCache:        64 << 20,
		CacheAdmission:   5 * time.Second,
		MaxWebRTCViewers: 500,
		RateLimit:        200,
		AccountRateLimit: 1000,
		MaxPendingTasks:  100,
		EventRetention:   30 * 24 * time.Hour,
		HealthRetention:  7 * 24 * time.Hour,
		ViewRetention:    30 * 24 * time.Hour,
	}
	// Secrets print as stars, so they are compared as what they are.
	secrets := cmp.Comparer(func(a, b weir.Secret) bool { return a == b })
	prefixes := cmp.Comparer(func(a, b []netip.Prefix) bool { return fmt.Sprint(a) == fmt.Sprint(b) })
	if diff := cmp.Diff(want, got, secrets, prefixes); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestPrecedence(t *testing.T) {
	file := writeFile(t, "http: :1\ndrain: 1s\nrun: [work]\ntrusted-proxies: [10.0.0.0/8, 192.168.1.1]\nsignup: true\nrate-limit: 7\n")
	for _, tt := range []struct {
		name string
		env  map[string]string
		args []string
		want string
	}{
		{"default", nil, nil, ":8080 30s [api live work] [] false 200"},
		{"file over default", map[string]string{"WEIR_CONFIG": file}, nil, ":1 1s [work] [10.0.0.0/8 192.168.1.1/32] true 7"},
		{"file named by flag", nil, []string{"--config", file}, ":1 1s [work] [10.0.0.0/8 192.168.1.1/32] true 7"},
		{
			"environment over file",
			map[string]string{"WEIR_CONFIG": file, "WEIR_HTTP": ":2", "WEIR_DRAIN": "2s", "WEIR_RUN": "api", "WEIR_TRUSTED_PROXIES": "", "WEIR_SIGNUP": "no"},
			nil, ":2 2s [api] [] false 7",
		},
		{
			"flag over environment",
			map[string]string{"WEIR_CONFIG": file, "WEIR_HTTP": ":2", "WEIR_DRAIN": "2s", "WEIR_RUN": "api", "WEIR_SIGNUP": "no"},
			[]string{"--http=:3", "serve", "--drain=3s", "--run=api,work", "--trusted-proxies=::1,10.1.2.3/8", "--signup", "--rate-limit=0"},
			":3 3s [api work] [::1/128 10.0.0.0/8] true 0",
		},
		{"empty turns off", map[string]string{"WEIR_RUN": "work"}, []string{"--http="}, " 30s [work] [] false 200"},
		{"empty variable that cannot be a value", map[string]string{"WEIR_DRAIN": "", "WEIR_RATE_LIMIT": "", "WEIR_SIGNUP": ""}, nil, ":8080 30s [api live work] [] false 200"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := parseWith(t, tt.env, tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprint(cfg.HTTP, " ", cfg.Drain, " ", cfg.Parts, " ", cfg.TrustedProxies, " ", cfg.Signup, " ", cfg.RateLimit)
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestDefaultFile(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("weir.yaml", []byte("http: :1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := parseHere(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.HTTP != ":1" {
		t.Errorf("http = %q, want the one of ./weir.yaml", cfg.HTTP)
	}
}

func TestDataFolderInOtherSettings(t *testing.T) {
	cfg, err := parseWith(t, map[string]string{"WEIR_DATA": "/var/lib/weir"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := cfg.Database.Reveal(), "sqlite:/var/lib/weir/weir.db"; got != want {
		t.Errorf("database = %q, want %q", got, want)
	}
	if got, want := cfg.SecretFile, "/var/lib/weir/secret"; got != want {
		t.Errorf("secret-file = %q, want %q", got, want)
	}
}

func TestSecretsFromFiles(t *testing.T) {
	key := writeFile(t, "k3y\n")
	cfg, err := parseWith(t, map[string]string{"WEIR_API_KEY": "", "WEIR_API_KEY_FILE": key, "WEIR_DATABASE_FILE": writeFile(t, "postgres://u:p@h/d\n")})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.APIKey.Reveal() != "k3y" || cfg.Database.Reveal() != "postgres://u:p@h/d" {
		t.Errorf("got key %q and database %q", cfg.APIKey.Reveal(), cfg.Database.Reveal())
	}
	if text := fmt.Sprintf("%v %+v", cfg, cfg); strings.Contains(text, "k3y") || strings.Contains(text, "u:p") {
		t.Errorf("the settings print their secrets: %s", text)
	}

	cfg, err = parseWith(t, map[string]string{"WEIR_API_KEY_FILE": key}, "--api-key=other")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.APIKey.Reveal() != "other" {
		t.Errorf("key = %q, want the one of the flag", cfg.APIKey.Reveal())
	}
}

func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  map[string]string
		file string
		args []string
		want []string // in the message
	}{
		{name: "unknown flag", args: []string{"--htpp=:1"}, want: []string{"unknown flag --htpp"}},
		{name: "unknown command", args: []string{"sevre"}, want: []string{"sevre"}},
		{name: "unknown key", file: "http: :1\nhtpp: :2\n", want: []string{`unknown setting "htpp"`, "settings.yaml"}},
		{name: "settings file in settings file", file: "config: x\n", want: []string{`unknown setting "config"`}},
		{name: "duplicate key", file: "http: :1\nhttp: :2\n", want: []string{"settings.yaml", "http"}},
		{name: "key with a map", file: "run: {api: true}\n", want: []string{"settings.yaml: run: must be a single value or a list"}},
		{name: "no map", file: "- http\n", want: []string{"settings.yaml"}},
		{name: "missing file", args: []string{"--config=nowhere.yaml"}, want: []string{"nowhere.yaml"}},
		{name: "missing file in environment", env: map[string]string{"WEIR_CONFIG": "nowhere.yaml"}, want: []string{"nowhere.yaml"}},
		{name: "no duration", args: []string{"--max-duration=0s"}, want: []string{"--max-duration: must be greater than 0"}},
		{name: "bad sandbox", args: []string{"--sandbox=loose"}, want: []string{"--sandbox", `"strict","require","best","off"`}},
		{name: "bad network", args: []string{"--allow-networks=10.0.0.0/8,10.0.0"}, want: []string{"--allow-networks", `"10.0.0" is not a network`}},
		{name: "bad network in environment", env: map[string]string{"WEIR_TRUSTED_PROXIES": "x"}, want: []string{"from WEIR_TRUSTED_PROXIES", `"x" is not a network`}},
		{name: "bad duration in file", file: "drain: 30\n", want: []string{"--drain", "settings.yaml", `"30" is not a duration`}},
		{name: "bad number in environment", env: map[string]string{"WEIR_RATE_LIMIT": "many"}, want: []string{"WEIR_RATE_LIMIT", "many"}},
		{name: "bad level", args: []string{"--log-level=loud"}, want: []string{"use debug, info, warn or error"}},
		{name: "bad part", args: []string{"--run=api,cook"}, want: []string{"--run", "cook"}},
		{name: "no part", args: []string{"--run="}, want: []string{"--run: must name at least one"}},
		{name: "api without address", args: []string{"--http="}, want: []string{"--http: is empty, but --run has api"}},
		{name: "bad address", args: []string{"--http=8080"}, want: []string{`--http: "8080" is not an address`}},
		{name: "port out of range", args: []string{"--ops=:70000"}, want: []string{`--ops: ":70000" is not an address`}},
		{name: "ops is http", args: []string{"--ops=:8080"}, want: []string{"--ops: must differ from --http"}},
		{name: "certificate without key", args: []string{"--tls-cert=a"}, want: []string{"each needs the other"}},
		{name: "key without certificate", args: []string{"--tls-key=a"}, want: []string{"each needs the other"}},
		{name: "two sources of certificates", args: []string{"--acme=a.example", "--tls-cert=a", "--tls-key=b"}, want: []string{"use one of them"}},
		{name: "unknown place on IPFS", args: []string{"--ipfs=pinata"}, want: []string{"--ipfs: must be local, kubo:URL or upload:URL#DID"}},
		{name: "local with an address", args: []string{"--ipfs=local:x"}, want: []string{"--ipfs: must be local, kubo:URL or upload:URL#DID"}},
		{name: "IPFS node without its URL", args: []string{"--ipfs=kubo:127.0.0.1:5001"}, want: []string{"--ipfs: must name the URL of the RPC"}},
		{name: "upload service without its DID", args: []string{"--ipfs=upload:https://up.example.com"}, want: []string{"--ipfs: must name the URL and the DID"}},
		{name: "upload service without its URL", args: []string{"--ipfs=upload:#did:web:up.example.com"}, want: []string{"--ipfs: must name the URL and the DID"}},
		{name: "bad URL of uploads to IPFS", args: []string{"--ipfs-url=ipfs.example.com"}, want: []string{"--ipfs-url: ", "is not a base URL"}},
		{name: "uploads to IPFS with the pages", args: []string{"--ipfs-url=https://A.example:8443/", "--public-url=https://a.example"}, want: []string{"--ipfs-url: must have another host"}},
		{name: "uploads to IPFS with the certificate's pages", args: []string{"--ipfs-url=https://a.example", "--acme=a.example"}, want: []string{"--ipfs-url: must have another host"}},
		{name: "certificate for an address", args: []string{"--acme=192.0.2.1"}, want: []string{"is not a host name"}},
		{name: "certificate for a URL", args: []string{"--acme=https://a.example"}, want: []string{"is not a host name"}},
		{name: "bad URL", args: []string{"--public-url=video.example.com"}, want: []string{"is not a base URL"}},
		{name: "URL with query", args: []string{"--public-url=https://a.example/?x=1"}, want: []string{"is not a base URL"}},
		{name: "negative limit", args: []string{"--rate-limit=-1"}, want: []string{"--rate-limit: must not be negative"}},
		{name: "no tasks", args: []string{"--max-pending-tasks=0"}, want: []string{"--max-pending-tasks"}},
		{name: "no retention", args: []string{"--event-retention=0s"}, want: []string{"--event-retention"}},
		{name: "no retention of health", args: []string{"--health-retention=0s"}, want: []string{"--health-retention"}},
		{name: "short retention of views", args: []string{"--view-retention=59m"}, want: []string{"--view-retention"}},
		{name: "negative stale", args: []string{"--stale=-1s"}, want: []string{"--stale: must not be negative"}},
		{name: "negative drain", args: []string{"--drain=-1s"}, want: []string{"--drain: must not be negative"}},
		{name: "WebRTC without a port", args: []string{"--webrtc=nowhere"}, want: []string{"--webrtc: \"nowhere\" is not an address"}},
		{name: "WebRTC host with a port", args: []string{"--webrtc-host=video.example.com:8189"}, want: []string{"--webrtc-host: \"video.example.com:8189\" is neither"}},
		{name: "SRT without a port", args: []string{"--srt=nowhere"}, want: []string{"--srt: \"nowhere\" is not an address"}},
		{name: "short passphrase", args: []string{"--srt-passphrase=hunter2"}, want: []string{"--srt-passphrase: must have 10 to 80 bytes"}},
		{name: "short secret of caches", args: []string{"--cache-secret=hunter2"}, want: []string{"--cache-secret: must have 32 to 200 letters"}},
		{name: "secret of caches with a quote", args: []string{"--cache-secret=" + strings.Repeat("a", 40) + "'"}, want: []string{"--cache-secret: must have"}},
		{name: "long admission", args: []string{"--cache-admission=11m"}, want: []string{"--cache-admission: must be from 1s to 10m"}},
		{name: "small cache of an edge", args: []string{"--edge-cache=1MiB"}, want: []string{"--edge-cache: must be at least 4MiB"}},
		{name: "no viewers over WebRTC", args: []string{"--max-webrtc-viewers=0"}, want: []string{"--max-webrtc-viewers: must be at least 1"}},
		{name: "key with blank", args: []string{"--api-key=a b"}, want: []string{"--api-key: must be printable"}},
		{name: "secret twice", env: map[string]string{"WEIR_API_KEY": "a", "WEIR_API_KEY_FILE": "b"}, want: []string{"WEIR_API_KEY and WEIR_API_KEY_FILE are both set"}},
		{name: "secret file missing", env: map[string]string{"WEIR_API_KEY_FILE": "nowhere"}, want: []string{"nowhere"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.file != "" {
				tt.args = append(tt.args, "--config", writeFile(t, tt.file))
			}
			_, err := parseWith(t, tt.env, tt.args...)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("message %q does not contain %q", err, want)
				}
			}
		})
	}
}

// An error of the settings file as a whole names the file, and no setting that happens to be
// the first one to be looked for.
func TestSettingsFileErrors(t *testing.T) {
	for content, want := range map[string]string{
		"http: :1\nhtpp: :2\n":   `: unknown setting "htpp"`,
		"run: {api: true}\n":     ": run: must be a single value or a list",
		"http: :1\nhttp: :2\n":   ": [2:1] mapping key \"http\" already defined at [1:1]",
		"signup: true\nrun: [\n": ": [2:6] sequence end token ']' not found",
	} {
		file := writeFile(t, content)
		if _, err := parseWith(t, nil, "--config", file, "serve"); err == nil || err.Error() != file+want {
			t.Errorf("%q: error %v, want %s", content, err, file+want)
		}
	}
	_, err := parseWith(t, map[string]string{"WEIR_CONFIG": "nowhere.yaml"})
	if want := "read settings: open nowhere.yaml: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// An error must not show what a person mistyped around a password.
func TestErrorsKeepSecrets(t *testing.T) {
	for _, args := range [][]string{
		{"--database=mysql://root:hunter2@db/weir"},
		{"--api-key=hunter2 x"},
		{"--srt-passphrase=hunter2"},
		{"--config", writeFile(t, "api-key: hunter2\nhttp: [\n")},
		{"--config", writeFile(t, "api-key: {x: hunter2}\n")},
	} {
		_, err := parseWith(t, nil, args...)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("parse(%q): %v, want an error without the secret", args, err)
		}
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"7d":    7 * 24 * time.Hour,
		"1d12h": 36 * time.Hour,
		"24h":   24 * time.Hour,
		"90s":   90 * time.Second,
		"0s":    0,
	} {
		if got, err := parseDuration(text); got != want || err != nil {
			t.Errorf("parseDuration(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "7", "d", "-1d", "7days", "1.5d", "99999d", "x"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("parseDuration(%q) = %v, want an error", text, got)
		}
	}
}

// Flags, weir.yaml and docs/settings.md say the same: every setting is in all
// three, with the same default, and nothing else is.
func TestSettingsAgree(t *testing.T) {
	parser, err := newParser(&Config{})
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]string{}
	for _, flag := range parser.Model.Flags {
		if flag.Name == "help" || flag.Name == "config" {
			continue
		}
		if flag.Help == "" || !flag.HasDefault {
			t.Errorf("--%s needs a help text and a default tag", flag.Name)
		}
		flags[flag.Name] = flag.Default
	}

	file, err := readSettings("../../weir.yaml", parser.Model.Flags)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(flags, file); diff != "" {
		t.Errorf("weir.yaml differs from the flags (-flags +weir.yaml):\n%s", diff)
	}
	if diff := cmp.Diff(flags, documented(t, "../../docs/settings.md")); diff != "" {
		t.Errorf("docs/settings.md differs from the flags (-flags +docs):\n%s", diff)
	}

	content, err := os.ReadFile("../../weir.yaml")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(content), "\n")
	for i, line := range lines {
		if name, _, found := strings.Cut(line, ":"); found && !strings.HasPrefix(line, "#") && (i == 0 || !strings.HasPrefix(lines[i-1], "# ")) {
			t.Errorf("weir.yaml: no sentence above %s", name)
		}
	}
}

// documented returns the settings in the table of a page of the manual.
func documented(t *testing.T, path string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `--([^` ]+)[^`]*` \\| `([^`]+)`[^|]* \\| `([^`]*)` \\| (.+) \\|$")
	settings := map[string]string{}
	for _, cells := range row.FindAllStringSubmatch(string(content), -1) {
		name, env, value := cells[1], cells[2], cells[3]
		if _, twice := settings[name]; twice {
			t.Errorf("%s: --%s is there twice", path, name)
		}
		if env != envName(name) {
			t.Errorf("%s: --%s: variable %s, want %s", path, name, env, envName(name))
		}
		if value == `""` {
			value = ""
		}
		settings[name] = value
	}
	if rows := strings.Count(string(content), "\n| `--"); rows != len(settings) {
		t.Errorf("%s: %d rows begin like a setting, but only %d can be read", path, rows, len(settings))
	}
	return settings
}

func TestIPFSRemote(t *testing.T) {
	for setting, want := range map[string]IPFSRemote{
		"local":                               {Kind: "local"},
		"kubo:http://127.0.0.1:5001":          {Kind: "kubo", URL: "http://127.0.0.1:5001"},
		"kubo:https://name:word@node.example": {Kind: "kubo", URL: "https://name:word@node.example"},
		"upload:https://up.example.com#did:web:up.example.com": {Kind: "upload", URL: "https://up.example.com", DID: "did:web:up.example.com"},
	} {
		cfg, err := parseWith(t, nil, "--ipfs="+setting)
		if err != nil {
			t.Fatal(err)
		}
		got, err := cfg.IPFSRemote()
		if err != nil || got != want {
			t.Errorf("--ipfs=%s is %+v, %v; want %+v", setting, got, err, want)
		}
	}
}
