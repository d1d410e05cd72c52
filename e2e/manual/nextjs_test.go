//go:build soak

package manual

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"weir/e2e/harness"
)

// The page of examples/nextjs, which make test-examples has built, plays streams on air, films and
// clips, public and gated, in the official React player.
func TestNextJS(t *testing.T) {
	w := newWorld(t)
	_, port, _ := strings.Cut(harness.FreeAddr(t), ":")
	cmd := exec.CommandContext(t.Context(), "npx", "next", "start", "--port", port)
	cmd.Dir = "../../examples/nextjs"
	cmd.Env = append(os.Environ(), "KEY="+w.Key, "WEIR="+w.URL)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	w.run(t, page{"examples/nextjs", []block{{line: 1, language: "test", text: `
PAGE=http://127.0.0.1:` + port + `
post() { curl -H "Authorization: Bearer $KEY" -d "$2" $WEIR/api/$1; }
post access-control/signing-key '' > signing.json
for kind in public jwt; do
  post stream '{"name":"a show","playbackPolicy":{"type":"'$kind'"}}' > stream-$kind.json
  ffmpeg -v error -re -stream_loop -1 -i film.mp4 -c:v libx264 -preset veryfast -tune zerolatency -g 25 \
    -c:a copy -f flv rtmp://localhost/live/$(jq -r .streamKey stream-$kind.json) </dev/null &
  post asset/upload/url '{"name":"a film","url":"https://example.com/film.mp4","playbackPolicy":{"type":"'$kind'"}}' > asset-$kind.json
done
until curl -s -o /dev/null $PAGE/; do sleep 0.2; done
for kind in public jwt; do
  onair stream-$kind.json
  ready asset-$kind.json
done
sleep 5
now=$(date +%s%3N)
for kind in public jwt; do
  post clip '{"playbackId":"'$(jq -r .playbackId stream-$kind.json)'","startTime":'$((now-4000))',"endTime":'$((now-1000))'}' > clip-$kind.json
  ready clip-$kind.json
  for what in stream asset clip; do
    id=$(jq -r '.asset.playbackId // .playbackId' $what-$kind.json)
    jwt=$(python3 -c 'import base64, json, jwt, sys, time
key = json.load(open("signing.json"))
print(jwt.encode({"sub": sys.argv[1], "pub": key["publicKey"], "exp": int(time.time()) + 600},
  base64.b64decode(key["privateKey"]), algorithm="ES256"))' $id)
    query="v=$id"
    if [ $kind = jwt ]; then query="$query&jwt=$jwt"; fi
    browse "$PAGE/?$query" 'document.querySelector("video")?.currentTime > 1'
    echo "$kind $what plays"
  done
done
`}}})
}
