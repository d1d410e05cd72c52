package manual

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"weir/e2e/harness"
	"weir/internal/config"
)

// The scripts create a stream, see an encoder come and go, and list assets.
func TestScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	w := harness.NewWeir(t)
	rtmp := harness.FreeAddr(t)
	w.Start("--rtmp", rtmp, "--session-timeout", "1s")
	var asset struct{ Asset struct{ ID string } }
	w.Must("POST", "/api/asset/request-upload", map[string]any{"name": "a film"}, &asset)
	for _, command := range [][]string{{"go", "run", "../../examples/go"}, {"python3", "../../examples/python/main.py"}} {
		t.Run(command[0], func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
			cmd.Env = append(os.Environ(), "KEY="+w.Key, "WEIR="+w.URL)
			cmd.Stderr = t.Output()
			pipe, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			said := &strings.Builder{}
			lines := bufio.NewScanner(pipe)
			for lines.Scan() {
				fmt.Fprintln(said, lines.Text())
				if key := regexp.MustCompile(`rtmp://HOST/live/(\S+)`).FindStringSubmatch(lines.Text()); key != nil {
					harness.FFmpeg(t, "-re", "-t", "2", "-i", harness.SmallClip(t), "-c", "copy", "-f", "flv", "rtmp://"+rtmp+"/live/"+key[1])
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			for _, want := range []string{"watch at", "event     stream.started", "event     stream.idle", "asset     " + asset.Asset.ID} {
				if !strings.Contains(said.String(), want) {
					t.Errorf("%q is not in what it said:\n%s", want, said)
				}
			}
		})
	}
}

// composeFile is what the test reads of a compose file.
type composeFile struct {
	Services map[string]struct {
		Image, Build string
		Environment  map[string]string
		Ports        []string
		Volumes      []string
		Secrets      []string
	}
	Secrets, Volumes map[string]any
}

// The compose file has settings that exist, and the ports of weir's defaults and of its image.
func TestCompose(t *testing.T) {
	folder := filepath.Join("..", "..", "examples", "compose")
	text, err := os.ReadFile(filepath.Join(folder, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file composeFile
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	service := file.Services["weir"]
	if _, err := os.Stat(filepath.Join(folder, service.Build, "Dockerfile")); err != nil {
		t.Errorf("build: %v", err)
	}
	known := settings()
	for name := range service.Environment {
		if !known[name] {
			t.Errorf("there is no setting %s", name)
		}
	}
	image, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	exposed := strings.Fields(regexp.MustCompile(`(?m)^EXPOSE (.*)$`).FindStringSubmatch(string(image))[1])
	published := map[string]bool{"8080": true} // nginx has it
	for _, port := range service.Ports {
		_, inside, _ := strings.Cut(port, ":")
		published[inside] = true
	}
	for _, port := range exposed {
		if !published[port] {
			t.Errorf("port %s of the image is not published", port)
		}
	}
	if len(published) != len(exposed) {
		t.Errorf("published %v, the image exposes %v", published, exposed)
	}
	for _, name := range service.Secrets {
		if _, ok := file.Secrets[name]; !ok {
			t.Errorf("there is no secret %s", name)
		}
	}
	for name, s := range file.Services {
		for _, volume := range s.Volumes {
			source, _, _ := strings.Cut(volume, ":")
			if _, named := file.Volumes[source]; strings.HasPrefix(source, "./") {
				if _, err := os.Stat(filepath.Join(folder, source)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			} else if !named {
				t.Errorf("%s: there is no volume %s", name, source)
			}
		}
		if s.Build == "" && !regexp.MustCompile(`:[^:]*[0-9]`).MatchString(s.Image) {
			t.Errorf("%s: the image %q has no version", name, s.Image)
		}
	}
	database, storage := service.Environment["WEIR_DATABASE"], service.Environment["WEIR_STORAGE"]
	for _, pair := range [][2]string{
		{database, file.Services["postgres"].Environment["POSTGRES_USER"] + ":" + file.Services["postgres"].Environment["POSTGRES_PASSWORD"] + "@postgres/"},
		{storage, file.Services["minio"].Environment["MINIO_ROOT_USER"] + ":" + file.Services["minio"].Environment["MINIO_ROOT_PASSWORD"] + "@minio:9000/"},
	} {
		if !strings.Contains(pair[0], pair[1]) {
			t.Errorf("%s does not have %s", pair[0], pair[1])
		}
	}
	conf, err := os.ReadFile(filepath.Join(folder, "nginx.conf"))
	if err != nil {
		t.Fatal(err)
	}
	if err := checkNginx(t, strings.ReplaceAll(string(conf), "http://weir:", "http://127.0.0.1:")); err != nil {
		t.Error(err)
	}
}

// settings returns the environment variables of all settings.
func settings() map[string]bool {
	known := map[string]bool{}
	fields := reflect.TypeFor[config.Config]()
	for field := range fields.Fields() {
		name := field.Tag.Get("name")
		if name == "" {
			name = regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(field.Name, "$1-$2")
		}
		known["WEIR_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))] = true
	}
	return known
}
