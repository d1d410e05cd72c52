package cli

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"weir/internal/config"
)

// TestMain is also the sandbox that the doctor starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "sandbox" {
		os.Exit(sandbox(os.Stderr, os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

func noEnvironment(string) (string, bool) { return "", false }

// parseWith parses in an empty folder, without an environment.
func parseWith(t *testing.T, args ...string) (*commands, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	_, c, err := parse(args, noEnvironment, t.Output())
	return c, err
}

// writeFile makes a file that only its owner may read.
func writeFile(t *testing.T, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMissingArgument(t *testing.T) {
	if _, err := parseWith(t, "key", "create"); err == nil || !strings.Contains(err.Error(), "<name>") {
		t.Errorf("error %v, want one that names the argument", err)
	}
}

func TestCommands(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"", "serve"},
		{"serve", "serve"},
		{"key create ci --user=a@b.example", "key create <name>"},
		{"key list", "key list"},
		{"key revoke 1", "key revoke <id>"},
		{"user create a@b.example", "user create <email>"},
		{"user passwd a@b.example", "user passwd <email>"},
		{"user list", "user list"},
		{"user quota a@b.example", "user quota <email>"},
		{"user quota a@b.example streams=5 storage=2TB", "user quota <email> <changes>"},
		{"user delete a@b.example", "user delete <email>"},
		{"user restore a@b.example", "user restore <email>"},
		{"backup /tmp/b", "backup <dir>"},
		{"doctor", "doctor"},
		{"version", "version"},
	} {
		t.Chdir(t.TempDir())
		command, _, err := parse(strings.Fields(tt.args), noEnvironment, t.Output())
		if err != nil {
			t.Errorf("weir %s: %v", tt.args, err)
		} else if command.Name != tt.want {
			t.Errorf("weir %s is %q, want %q", tt.args, command.Name, tt.want)
		}
	}
}

// helpOf returns the help that a command line prints.
func helpOf(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if _, _, err := parse(args, noEnvironment, &out); !errors.Is(err, config.ErrHelp) {
		t.Errorf("weir %s: error %v, want config.ErrHelp", args, err)
	}
	return out.String()
}

func TestHelp(t *testing.T) {
	for args, want := range map[string]struct{ has, lacks []string }{
		"--help":           {has: []string{"key create", "backup", "--version", "weir serve --help"}, lacks: []string{"--http", "--config"}},
		"help":             {has: []string{"key create", "backup"}, lacks: []string{"--http"}},
		"serve --help":     {has: []string{"--http=ADDR", "($WEIR_HTTP)", "($WEIR_CONFIG)", "Storage\n", "Accounts and limits\n"}, lacks: []string{"--version"}},
		"help serve":       {has: []string{"--rtmp=ADDR", "--data=DIR"}},
		"help key":         {has: []string{"key create", "key list"}, lacks: []string{"--data"}},
		"help key create":  {has: []string{"<name>", "--user=EMAIL", "--data=DIR", "--database", "--secret-file"}, lacks: []string{"--http", "--workers"}},
		"transcode --help": {has: []string{"--profile", "--workers", "--sandbox", "--c2pa-key"}, lacks: []string{"--rtmp", "--data", "--database", "--api-key"}},
		"help user passwd": {has: []string{"--public-url", "--http"}, lacks: []string{"--rtmp", "--delete-grace"}},
		"help verify":      {has: []string{"--trust"}, lacks: []string{"--config", "--data"}},
	} {
		help := helpOf(t, strings.Fields(args)...)
		for _, text := range want.has {
			if !strings.Contains(help, text) {
				t.Errorf("weir %s does not show %q:\n%s", args, text, help)
			}
		}
		for _, text := range want.lacks {
			if strings.Contains(help, text) {
				t.Errorf("weir %s shows %q:\n%s", args, text, help)
			}
		}
	}
}

// Every command says which settings count for it, and they exist.
func TestSettingsOfCommands(t *testing.T) {
	all := helpOf(t, "serve", "--help")
	var check func(of reflect.Type, path, settings string)
	check = func(of reflect.Type, path, settings string) {
		leaf := true
		for field := range of.Fields() {
			if _, command := field.Tag.Lookup("cmd"); command {
				leaf = false
				check(field.Type, path+" "+strings.ToLower(field.Name), cmp.Or(field.Tag.Get("settings"), settings))
			}
		}
		if leaf && settings == "" {
			t.Errorf("weir%s has no tag settings", path)
		}
		for name := range strings.SplitSeq(settings, ",") {
			if leaf && !slices.Contains([]string{"", "all", "none", "store", "address", "ingest"}, name) && !strings.Contains(all, "  --"+name+"=") {
				t.Errorf("weir%s: there is no setting %q", path, name)
			}
		}
	}
	check(reflect.TypeFor[commands](), "", "")
	// The settings of the sets.
	for _, set := range []string{"--data", "--database", "--secret-file", "--http", "--tls-cert", "--tls-key", "--acme", "--public-url", "--run", "--rtmp", "--rtmps", "--srt", "--srt-passphrase", "--webrtc"} {
		if help := helpOf(t, "stream", "create", "--help"); !strings.Contains(help, "  "+set+"=") {
			t.Errorf("weir stream create --help does not show %s:\n%s", set, help)
		}
	}
}

// A command without settings runs with invalid ones, too.
func TestVersionWithInvalidSettings(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("weir.yaml", []byte("htpp: :1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(name string) (string, bool) { return "many", name == "WEIR_RATE_LIMIT" }
	for _, args := range []string{"version", "--version", "serve --version"} {
		if command, _, err := parse(strings.Fields(args), env, t.Output()); err != nil || command.Name != "version" {
			t.Errorf("weir %s: %v, %v", args, command, err)
		}
	}
	if _, _, err := parse([]string{"key", "list"}, noEnvironment, t.Output()); err == nil || !strings.Contains(err.Error(), "htpp") {
		t.Errorf("weir key list: error %v, want one about the settings file", err)
	}
}

func TestUnknownCommands(t *testing.T) {
	for args, want := range map[string]string{
		"sevre":        `did you mean "serve"?`,
		"stream crate": `did you mean "create"?`,
		"help stram":   `did you mean "stream"?`,
		"frobnicate":   "; weir help lists the commands",
	} {
		if _, err := parseWith(t, strings.Fields(args)...); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("weir %s: error %v, want %q at its end", args, err, want)
		}
	}
}

// What commands write is for their user alone, whatever the umask of the shell is.
func TestUmask(t *testing.T) {
	before := syscall.Umask(0o022)
	defer syscall.Umask(before)
	if status := Run([]string{"version"}, nil, nil); status != 0 {
		t.Fatalf("weir version ends with %d", status)
	}
	if got := syscall.Umask(0o022); got != 0o077 {
		t.Errorf("the umask is %03o, want 077", got)
	}
	// What transcode makes is for the caller.
	if status := Run([]string{"transcode", filepath.Join(t.TempDir(), "none.mp4"), t.TempDir()}, nil, nil); status == 0 {
		t.Error("a file that does not exist was transcoded")
	}
	if got := syscall.Umask(0o022); got != 0o022 {
		t.Errorf("the umask for transcode is %03o, want that of the shell", got)
	}
}

// docs/commands.md has every command, with its flags.
func TestCommandsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for section := range strings.SplitSeq(string(text), "\n## ") {
		title, body, _ := strings.Cut(section, "\n")
		sections[title] = body
	}
	found := map[string]bool{}
	var check func(of reflect.Type, path string)
	check = func(of reflect.Type, path string) {
		leaf := path != "weir"
		for field := range of.Fields() {
			if _, command := field.Tag.Lookup("cmd"); command {
				leaf = false
				check(field.Type, path+" "+strings.ToLower(field.Name))
			}
		}
		if !leaf {
			return
		}
		found[path] = true
		section, ok := sections[path]
		if !ok {
			t.Errorf("docs/commands.md does not have %s", path)
		}
		help := helpOf(t, append(strings.Fields(path)[1:], "--help")...)
		own, _, _ := strings.Cut(help, "\nStorage\n")
		_, own, _ = strings.Cut(own, "\nFlags:\n")
		for _, flag := range regexp.MustCompile(`(?m)^      --([a-z0-9-]+)`).FindAllStringSubmatch(own, -1) {
			if flag[1] != "config" && !strings.Contains(section, "`--"+flag[1]) {
				t.Errorf("docs/commands.md does not have --%s of %s", flag[1], path)
			}
		}
		for _, flag := range regexp.MustCompile("(?m)^\\| `--([a-z0-9-]+)").FindAllStringSubmatch(section, -1) {
			if !strings.Contains(own, "--"+flag[1]) {
				t.Errorf("docs/commands.md has --%s for %s, which it does not have", flag[1], path)
			}
		}
	}
	check(reflect.TypeFor[commands](), "weir")
	for title := range sections {
		if strings.HasPrefix(title, "weir ") && !found[title] {
			t.Errorf("docs/commands.md has %s, which does not exist", title)
		}
	}
}
