package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
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
	// A library of IPFS starts it when the program starts.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/ipfs/go-log/writer.(*MirrorWriter).logRoutine"))
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

func TestHelp(t *testing.T) {
	for args, want := range map[string][]string{
		"--help":            {"key create", "backup", "--http=ADDR", "($WEIR_HTTP)", "($WEIR_CONFIG)"},
		"key create --help": {"<name>", "--user=EMAIL"},
	} {
		var out bytes.Buffer
		_, _, err := parse(strings.Fields(args), noEnvironment, &out)
		if !errors.Is(err, config.ErrHelp) {
			t.Errorf("weir %s: error %v, want config.ErrHelp", args, err)
		}
		for _, text := range want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("weir %s does not show %q:\n%s", args, text, out.String())
			}
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
