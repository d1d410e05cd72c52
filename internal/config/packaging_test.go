package config

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

// unitValues returns the values of a key of a systemd unit.
func unitValues(unit, key string) []string {
	var values []string
	for _, match := range regexp.MustCompile(`(?m)^`+key+`=(.*)$`).FindAllStringSubmatch(unit, -1) {
		values = append(values, match[1])
	}
	return values
}

// The Debian package has settings that can be read and that are the defaults, but for the data
// folder; the unit starts weir with them; and the manual shows that unit.
func TestPackage(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("only Debian can make packages")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	deb, files := filepath.Join(dir, "weir.deb"), filepath.Join(dir, "files")
	program := writeFile(t, "no program")
	for _, args := range [][]string{
		{filepath.Join(root, "scripts/release-deb"), program, "arm64", "1.2.0-rc.1", deb},
		{"dpkg-deb", "-R", deb, files},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", args, err, out)
		}
	}
	read := func(path string) string {
		content, err := os.ReadFile(filepath.Join(files, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}

	control := read("DEBIAN/control")
	for _, line := range []string{"Package: weir", "Version: 1.2.0~rc.1", "Architecture: arm64", "Depends: adduser, ca-certificates, ffmpeg"} {
		if !strings.Contains(control, line+"\n") {
			t.Errorf("control has no line %q:\n%s", line, control)
		}
	}
	if regexp.MustCompile(`@[A-Z]+@`).MatchString(control) {
		t.Errorf("control has a place that is not filled:\n%s", control)
	}
	if got := read("DEBIAN/conffiles"); got != "/etc/weir/weir.yaml\n" {
		t.Errorf("conffiles are %q", got)
	}
	if got := read("usr/bin/weir"); got != "no program" {
		t.Errorf("the program is %q", got)
	}

	unit := read("usr/lib/systemd/system/weir.service")
	start := unitValues(unit, "ExecStart")
	if len(start) != 1 {
		t.Fatalf("the unit starts %q", start)
	}
	args := strings.Fields(start[0])[1:] // without the program
	i := len(args) - 1
	if args[i] != "/etc/weir/weir.yaml" {
		t.Fatalf("the unit starts weir with %q; its settings are in /etc/weir/weir.yaml", args)
	}
	args[i] = filepath.Join(files, args[i])
	got, err := parseWith(t, nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	want, err := parseWith(t, nil, "--data", "/var/lib/weir")
	if err != nil {
		t.Fatal(err)
	}
	want.File = got.File
	secrets := cmp.Comparer(func(a, b weir.Secret) bool { return a == b })
	prefixes := cmp.Comparer(func(a, b []netip.Prefix) bool { return fmt.Sprint(a) == fmt.Sprint(b) })
	if diff := cmp.Diff(want, got, secrets, prefixes); diff != "" {
		t.Errorf("settings of the package (-defaults +got):\n%s", diff)
	}
	stop, err := time.ParseDuration(unitValues(unit, "TimeoutStopSec")[0] + "s")
	if err != nil || stop <= got.Drain {
		t.Errorf("systemd kills weir after %v, %v; weir may take %v", stop, err, got.Drain)
	}

	manual, err := os.ReadFile(filepath.Join(root, "docs/install.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(manual), "\n"+unit+"```\n") {
		t.Error("docs/install.md does not show packaging/weir.service as it is")
	}
}
