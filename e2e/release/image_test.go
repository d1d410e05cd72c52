//go:build release

package release

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"weir/e2e/harness"
)

// image is an unpacked OCI image.
type image struct {
	root   string // its root file system
	layers []string
	config struct {
		Architecture string `json:"architecture"`
		Config       struct {
			User       string
			Env        []string
			Entrypoint []string
			Cmd        []string
			WorkingDir string
			Volumes    map[string]struct{}
		} `json:"config"`
	}
}

// unpack unpacks the image of a build, as an ordinary user can.
func unpack(t *testing.T, b build) *image {
	t.Helper()
	layout, bundle := t.TempDir(), filepath.Join(t.TempDir(), "bundle")
	run(t, "tar", "-C", layout, "-xf", b.name+".oci.tar")
	var index struct {
		Manifests []struct {
			Digest      string            `json:"digest"`
			Annotations map[string]string `json:"annotations"`
		} `json:"manifests"`
	}
	decode(t, filepath.Join(layout, "index.json"), &index)
	if len(index.Manifests) != 1 {
		t.Fatalf("the layout has %d images, want 1", len(index.Manifests))
	}
	blob := func(digest string) string {
		return filepath.Join(layout, "blobs", strings.ReplaceAll(digest, ":", "/"))
	}
	type descriptor struct {
		Digest string `json:"digest"`
	}
	var manifest struct {
		Config descriptor   `json:"config"`
		Layers []descriptor `json:"layers"`
	}
	decode(t, blob(index.Manifests[0].Digest), &manifest)
	i := &image{root: filepath.Join(bundle, "rootfs")}
	decode(t, blob(manifest.Config.Digest), &i.config)
	for _, layer := range manifest.Layers {
		i.layers = append(i.layers, blob(layer.Digest))
	}
	tag := index.Manifests[0].Annotations["org.opencontainers.image.ref.name"]
	run(t, "umoci", "unpack", "--rootless", "--image", layout+":"+tag, bundle)
	return i
}

func decode(t *testing.T, path string, value any) {
	t.Helper()
	if err := json.Unmarshal(read(t, path), value); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// command returns a command in a container of the image: as its user, without rights, in a root file
// system that only the volume of can be written. Its network is that of this machine.
func (i *image) command(t *testing.T, shared string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	uid, gid, _ := strings.Cut(i.config.Config.User, ":")
	bwrap := []string{
		"--unshare-user", "--unshare-pid", "--unshare-ipc", "--uid", uid, "--gid", gid, "--cap-drop", "ALL", "--die-with-parent",
		"--clearenv", "--ro-bind", i.root, "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
		"--bind", shared, "/mnt", "--chdir", i.config.Config.WorkingDir,
	}
	for volume := range i.config.Config.Volumes {
		bwrap = append(bwrap, "--bind", filepath.Join(i.root, volume), volume)
	}
	for _, variable := range append(i.config.Config.Env, env...) {
		name, value, _ := strings.Cut(variable, "=")
		bwrap = append(bwrap, "--setenv", name, value)
	}
	return exec.CommandContext(t.Context(), "bwrap", append(append(bwrap, "--"), args...)...)
}

// An image runs weir as an ordinary user: it serves, and ffmpeg makes renditions.
func TestImage(t *testing.T) {
	each(t, func(t *testing.T, b build) {
		i := unpack(t, b)
		c := i.config.Config
		if i.config.Architecture != b.arch || c.User != "10001:10001" {
			t.Errorf("architecture %s, user %s", i.config.Architecture, c.User)
		}
		checkLayer(t, i.layers[len(i.layers)-1])
		for _, path := range []string{"usr/bin/ffmpeg", "usr/bin/ffprobe", "etc/ssl/certs/ca-certificates.crt"} {
			if info, err := os.Stat(filepath.Join(i.root, path)); err != nil || info.Size() == 0 {
				t.Errorf("%s: empty, or %v", path, err)
			}
		}
		shared := t.TempDir()
		if err := i.command(t, shared, nil, "ffmpeg", "-version").Run(); err != nil && !b.native() {
			t.Skipf("this machine can't run programs for %s: %v", b.arch, err)
		}
		var env []string
		if !b.native() {
			env = append(env, "WEIR_SANDBOX=off") // qemu does not know its system calls
		}
		i.serve(t, b, env)
		film := append(append([]string{"ffmpeg"}, harness.Pictures("320x180", 25, 2)...), "-c:v", "libx264", "-c:a", "aac", "/mnt/film.mp4")
		output(t, i.command(t, shared, nil, film...))
		transcode := append(append([]string{}, c.Entrypoint...), "transcode", "/mnt/film.mp4", "/mnt/out")
		t.Log(output(t, i.command(t, shared, env, transcode...)))
		if text := string(read(t, filepath.Join(shared, "out", "index.m3u8"))); !strings.Contains(text, "#EXT-X-STREAM-INF") {
			t.Errorf("the playlist has no renditions:\n%s", text)
		}
	})
}

// serve starts the image as its settings say, and asks for its health and version.
func (i *image) serve(t *testing.T, b build, env []string) {
	t.Helper()
	addr := harness.FreeAddr(t)
	env = append(env, "WEIR_HTTP="+addr, "WEIR_RTMP=", "WEIR_SRT=", "WEIR_WEBRTC=", "WEIR_OPS=")
	cmd := i.command(t, t.TempDir(), env, append(i.config.Config.Entrypoint, i.config.Config.Cmd...)...)
	log := &harness.LockedBuffer{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	harness.Eventually(t, func() error {
		select {
		case err := <-exited:
			t.Fatalf("weir ended: %v\n%s", err, log)
		default:
		}
		if _, err := get("http://" + addr + "/healthz"); err != nil {
			return fmt.Errorf("weir does not answer: %w\n%s", err, log)
		}
		return nil
	})
	version, err := get("http://" + addr + "/api/version")
	if want := fmt.Sprintf(`"commit":%q`, commit(t)); err != nil || !strings.Contains(version, want) || !strings.Contains(version, "v"+b.version) {
		t.Errorf("version %s, %v; want %s and v%s", version, err, want, b.version)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	<-exited
}

func get(url string) (string, error) {
	response, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(body), err
}

// checkLayer checks that the last layer has weir, which only root may change, and a data folder that
// only the user of the image may read.
func checkLayer(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	zipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(zipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %o %d:%d", header.Name, header.Mode, header.Uid, header.Gid))
	}
	if want := "usr/bin/weir 755 0:0, data/ 700 10001:10001"; strings.Join(got, ", ") != want {
		t.Errorf("the layer has %q, want %q", got, want)
	}
}
