//go:build release

// Package release tests what make release has built: make test-release builds it first. The
// binaries are those of the commit, the packages can be installed, the images run.
package release

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// build is what a release has for an architecture.
type build struct {
	arch    string
	version string // without the v
	name    string // of the binary; those of its list and its image start with it
	deb     string
}

func (b build) native() bool { return b.arch == runtime.GOARCH }

func folder(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("WEIR_TEST_RELEASE")
	if dir == "" {
		t.Fatal("WEIR_TEST_RELEASE is not set; run make test-release")
	}
	return dir
}

// each runs a test for every architecture of the release.
func each(t *testing.T, test func(t *testing.T, b build)) {
	t.Helper()
	debs, err := filepath.Glob(filepath.Join(folder(t), "weir_*.deb"))
	if err != nil || len(debs) == 0 {
		t.Fatalf("the release has no packages: %v", err)
	}
	for _, deb := range debs {
		parts := strings.Split(strings.TrimSuffix(filepath.Base(deb), ".deb"), "_")
		if len(parts) != 3 {
			t.Fatalf("%s is not named weir_VERSION_ARCH.deb", deb)
		}
		b := build{arch: parts[2], version: parts[1], deb: deb}
		b.name = filepath.Join(folder(t), "weir_"+b.version+"_linux_"+b.arch)
		t.Run(b.arch, func(t *testing.T) { test(t, b) })
	}
}

// run runs a program in the folder of the repository and returns what it prints.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	return output(t, exec.CommandContext(t.Context(), name, args...))
}

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if cmd.Dir == "" {
		cmd.Dir = filepath.Join("..", "..")
	}
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, stdout.String(), stderr.String())
	}
	return strings.TrimSpace(stdout.String())
}

func commit(t *testing.T) string { return run(t, "git", "rev-parse", "HEAD") }

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// SHA256SUMS has the right sum of every file.
func TestChecksums(t *testing.T) {
	sums := map[string]string{}
	for line := range strings.Lines(string(read(t, filepath.Join(folder(t), "SHA256SUMS")))) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		sums[name] = sum
	}
	files, err := os.ReadDir(folder(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if file.Name() == "SHA256SUMS" {
			continue
		}
		got := fmt.Sprintf("%x", sha256.Sum256(read(t, filepath.Join(folder(t), file.Name()))))
		if sums[file.Name()] != got {
			t.Errorf("%s: sum %q, want %s", file.Name(), sums[file.Name()], got)
		}
		delete(sums, file.Name())
	}
	if len(sums) > 0 {
		t.Errorf("sums of files that do not exist: %v", sums)
	}
}

// A binary is static, for its architecture, and knows its version and commit.
func TestBinary(t *testing.T) {
	each(t, func(t *testing.T, b build) {
		program, err := elf.Open(b.name)
		if err != nil {
			t.Fatal(err)
		}
		defer program.Close()
		want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
		if program.Machine != want[b.arch] {
			t.Errorf("machine %v", program.Machine)
		}
		for _, segment := range program.Progs {
			if segment.Type == elf.PT_INTERP || segment.Type == elf.PT_DYNAMIC {
				t.Errorf("has a segment %v, so it is not static", segment.Type)
			}
		}
		info, err := buildinfo.ReadFile(b.name)
		if err != nil {
			t.Fatal(err)
		}
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		if info.Main.Version != "v"+b.version || settings["vcs.revision"] != commit(t) || settings["vcs.modified"] != "false" {
			t.Errorf("version %s, settings %v; want %s and the commit %s", info.Main.Version, settings, b.version, commit(t))
		}
		if b.native() {
			got := run(t, b.name, "version")
			if want := fmt.Sprintf("weir v%s, commit %s, %s", b.version, commit(t), info.GoVersion); got != want {
				t.Errorf("weir version prints %q, want %q", got, want)
			}
		}
	})
}

// Whoever builds the commit elsewhere gets the same bytes.
func TestReproducible(t *testing.T) {
	source := filepath.Join(t.TempDir(), "another", "folder")
	run(t, "git", "clone", "-q", "--shared", ".", source)
	each(t, func(t *testing.T, b build) {
		again := filepath.Join(t.TempDir(), "weir")
		cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s", "-buildvcs=true", "-o", again, ".")
		cmd.Dir = source
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+b.arch)
		if b.native() {
			cmd.Env = append(cmd.Env, "GOCACHE="+t.TempDir()) // compiles everything again, which takes minutes
		}
		output(t, cmd)
		if !bytes.Equal(read(t, again), read(t, b.name)) {
			t.Error("the binary has other bytes when it is built again")
		}
		deb := filepath.Join(t.TempDir(), "weir.deb")
		cmd = exec.CommandContext(t.Context(), "scripts/release-deb", again, b.arch, b.version, deb)
		cmd.Dir = source
		cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+run(t, "git", "log", "-1", "--format=%ct"))
		output(t, cmd)
		if !bytes.Equal(read(t, deb), read(t, b.deb)) {
			t.Error("the package has other bytes when it is made again")
		}
	})
}

type sbom struct {
	Metadata struct {
		Component component `json:"component"`
	} `json:"metadata"`
	Components []component `json:"components"`
}

type component struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
	Hashes  []struct {
		Content string `json:"content"`
	} `json:"hashes"`
}

// The lists are valid and have every module of the binary, every package of npm that is in it, and
// for an image the packages of Debian.
func TestSBOM(t *testing.T) {
	schema := cycloneDX(t)
	each(t, func(t *testing.T, b build) {
		info, err := buildinfo.ReadFile(b.name)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"), "pkg:npm/%40contentauth/c2pa-wasm@", "pkg:npm/hls.js@"}
		for _, module := range info.Deps {
			want = append(want, "pkg:golang/"+module.Path+"@"+strings.ReplaceAll(module.Version, "+", "%2B"))
		}
		if len(want) < 50 {
			t.Fatalf("the binary names only %d modules", len(want))
		}
		checkSBOM(t, schema, b, b.name+".cdx.json", want)
		checkSBOM(t, schema, b, b.name+".oci.cdx.json", append(want, "pkg:deb/debian/ffmpeg@", "pkg:deb/debian/libc6@"))
	})
}

func checkSBOM(t *testing.T, schema *jsonschema.Schema, b build, path string, want []string) {
	t.Helper()
	content := read(t, path)
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
	if err == nil {
		err = schema.Validate(value)
	}
	var list sbom
	if err == nil {
		err = json.Unmarshal(content, &list)
	}
	if err != nil {
		t.Fatalf("%s: %v", filepath.Base(path), err)
	}
	for _, purl := range want {
		if !slices.ContainsFunc(list.Components, func(c component) bool { return strings.HasPrefix(c.PURL, purl) }) {
			t.Errorf("%s: has no %s", filepath.Base(path), purl)
		}
	}
	program := list.Metadata.Component
	if sum := fmt.Sprintf("%x", sha256.Sum256(read(t, b.name))); program.Version != "v"+b.version ||
		len(program.Hashes) != 1 || program.Hashes[0].Content != sum {
		t.Errorf("%s: is of %+v, want version %s and sum %s", filepath.Base(path), program, b.version, sum)
	}
}

// cycloneDX returns the schema of the lists. A module of the authors of the form has it.
func cycloneDX(t *testing.T) *jsonschema.Schema {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "github.com/CycloneDX/cyclonedx-go@v0.12.0")
	cmd.Dir = t.TempDir()
	var module struct{ Dir string }
	if err := json.Unmarshal([]byte(output(t, cmd)), &module); err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	for url, file := range map[string]string{
		"http://cyclonedx.org/schema/spdx.schema.json":     "spdx.schema.json",
		"http://cyclonedx.org/schema/jsf-0.82.schema.json": "jsf-0.82.schemax.json",
		"http://cyclonedx.org/schema/bom-1.6.schema.json":  "bom-1.6.schema.json",
	} {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(read(t, filepath.Join(module.Dir, "schema", file))))
		if err == nil {
			err = compiler.AddResource(url, value)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	schema, err := compiler.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// A package can be installed on a bare Debian, where weir then works, and be removed again.
func TestInstall(t *testing.T) {
	each(t, func(t *testing.T, b build) {
		if got := run(t, "dpkg-deb", "-f", b.deb, "Architecture"); got != b.arch {
			t.Errorf("architecture %s", got)
		}
		if !b.native() {
			t.Skip("installed only on the architecture of this machine; the packages differ in the binary alone")
		}
		found := filepath.Join(t.TempDir(), "found")
		hook := func(command string) string { return "--customize-hook=" + command + " >>" + found }
		run(
			t, "mmdebstrap", "--quiet", "--variant=apt", "--customize-hook=copy-in "+b.deb+" /root",
			hook(`chroot "$1" apt-get install -y -q --no-install-recommends /root/`+filepath.Base(b.deb)),
			hook(`chroot "$1" weir version`),
			hook(`chroot "$1" stat -c "%n %A %U:%G" /etc/weir/weir.yaml /var/lib/weir`),
			hook(`chroot "$1" stat -c "%N" /etc/systemd/system/multi-user.target.wants/weir.service`),
			hook(`chroot --userspec=weir:weir "$1" weir doctor --config /etc/weir/weir.yaml`),
			hook(`chroot "$1" dpkg --purge weir`),
			hook(`chroot "$1" sh -c "ls -d /etc/weir /usr/bin/weir /var/lib/weir 2>&1 || true"`),
			"bookworm", "/dev/null",
		)
		text := string(read(t, found))
		t.Log(text)
		for _, want := range []string{
			"weir v" + b.version + ", commit " + commit(t),
			"/etc/weir/weir.yaml -rw-r----- root:weir",
			"/var/lib/weir drwx------ weir:weir",
			"'/etc/systemd/system/multi-user.target.wants/weir.service' -> '/lib/systemd/system/weir.service'",
			"the data in /var/lib/weir stays",
			"cannot access '/etc/weir'",
			"cannot access '/usr/bin/weir'",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("not found: %s", want)
			}
		}
	})
}

// systemd knows all that the unit says.
func TestUnit(t *testing.T) {
	each(t, func(t *testing.T, b build) {
		files := t.TempDir()
		run(t, "dpkg-deb", "-x", b.deb, files)
		// Here weir is not installed, so the unit gets another program to start.
		unit := filepath.Join(files, "weir.service")
		text := strings.Replace(string(read(t, filepath.Join(files, "usr/lib/systemd/system/weir.service"))), "ExecStart=weir ", "ExecStart=/bin/true ", 1)
		if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", unit).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("systemd-analyze verify: %v\n%s", err, out)
		}
	})
}
