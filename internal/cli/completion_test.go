package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/internal/config"
)

// completionScript writes the script of a shell to a file.
func completionScript(t *testing.T, shell string) (path string) {
	t.Helper()
	script, err := config.Completion(&commands{}, shell)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "weir")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A real bash completes the last of the words.
func TestBashCompletion(t *testing.T) {
	script := completionScript(t, "bash")
	for _, tt := range []struct {
		words []string
		want  string // all, or some of them with … at the end
	}{
		{[]string{"str"}, "stream"},
		{[]string{"stream", ""}, "create list delete"},
		{[]string{"key", "create", "--us"}, "--user"},
		{[]string{"key", "create", "ci", "--da"}, "--data --database"},
		{[]string{"transcode", "--rt"}, ""},
		{[]string{"transcode", "in.mp4", "out", "--ou"}, "--outputs"},
		{[]string{"--rtm"}, "--rtmp --rtmps"},
		{[]string{"--vers"}, "--version"},
		{[]string{"serve", "--vers"}, ""},
		{[]string{"--data", "x", "user", "q"}, "quota"},
		{[]string{"completion", "--"}, "--help"},
		{[]string{""}, "serve key user stream asset webhook transcode clip verify backup doctor version completion help"},
	} {
		args := append([]string{"--norc", "-c", `source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _weir; echo "${COMPREPLY[*]}"`, "bash", script, "weir"}, tt.words...)
		out, err := exec.CommandContext(t.Context(), "bash", args...).CombinedOutput()
		got, want := strings.Fields(string(out)), strings.Fields(tt.want)
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("weir %s: %v, %q, want %q", strings.Join(tt.words, " "), err, got, want)
		}
	}
}

// The other shells accept their scripts, where they are installed.
func TestOtherCompletions(t *testing.T) {
	for _, shell := range []string{"zsh", "fish"} {
		script := completionScript(t, shell)
		text, err := os.ReadFile(script)
		if err != nil || !strings.Contains(string(text), "no-passthrough") {
			t.Errorf("%s: %v:\n%s", shell, err, text)
		}
		if _, err := exec.LookPath(shell); err != nil {
			continue
		}
		if out, err := exec.CommandContext(t.Context(), shell, "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
	if _, err := parseWith(t, "completion", "csh"); err == nil || !strings.Contains(err.Error(), "bash") {
		t.Errorf("completion for csh: %v", err)
	}
}
