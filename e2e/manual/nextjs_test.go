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

// The page of examples/nextjs, which make test-examples has built, plays a stream on air and films,
// public and gated, in the official React player.
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
curl -H "Authorization: Bearer $KEY" -d '{"name":"a show"}' $WEIR/api/stream > stream.json
ffmpeg -v error -re -stream_loop -1 -i film.mp4 -c:v libx264 -tune zerolatency -g 25 -c:a copy \
  -f flv rtmp://localhost/live/$(jq -r .streamKey stream.json) </dev/null &
curl -H "Authorization: Bearer $KEY" -d '{"name":"a film","url":"https://example.com/film.mp4"}' \
  $WEIR/api/asset/upload/url > asset.json
curl -H "Authorization: Bearer $KEY" $WEIR/api/asset/upload/url \
  -d '{"name":"gated","url":"https://example.com/film.mp4","playbackPolicy":{"type":"jwt"}}' > gated.json
onair stream.json
ready asset.json
ready gated.json
until curl -s -o /dev/null http://127.0.0.1:` + port + `/; do sleep 0.2; done
curl -X POST -H "Authorization: Bearer $KEY" $WEIR/api/access-control/signing-key > signing.json
GATED=$(jq -r .asset.playbackId gated.json)
JWT=$(python3 -c 'import base64, json, jwt, sys, time
key = json.load(open("signing.json"))
print(jwt.encode({"sub": sys.argv[1], "pub": key["publicKey"], "exp": int(time.time()) + 600},
  base64.b64decode(key["privateKey"]), algorithm="ES256"))' $GATED)
browse "http://127.0.0.1:` + port + `/?v=$GATED&jwt=$JWT" 'document.querySelector("video")?.currentTime > 1'
for id in $(jq -r .playbackId stream.json) $(jq -r .asset.playbackId asset.json); do
  browse "http://127.0.0.1:` + port + `/?v=$id" 'document.querySelector("video")?.currentTime > 1'
done
`}}})
}
