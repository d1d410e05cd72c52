package live

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"weir/e2e/harness"
	"weir/internal/store/pgtest"
)

// liveSDK lets the official JavaScript SDK do everything that it can do with a stream that
// is on air, and a webhook hear of it. sdk/live-on-air.mjs has the cases.
func liveSDK(t *testing.T) {
	if _, err := os.Stat(filepath.Join("..", "sdk", "node_modules", "livepeer")); err != nil {
		t.Fatalf("the SDK is not installed (%v); run: make test", err)
	}
	platform := nginxServer(t)
	platform.stop() // the script starts it
	w := harness.NewWeir(t)
	w.Database = pgtest.Start(t) // where events of several transactions at once must keep their order
	rtmp := harness.FreeAddr(t)
	w.Start("--rtmp", rtmp)
	stage, err := json.Marshal(map[string]any{
		"ingest": "rtmp://" + rtmp + "/live", "clip": sdkClip(t),
		"platform": map[string]any{"addr": platform.addr, "folder": platform.folder, "command": platform.command},
	})
	if err != nil {
		t.Fatal(err)
	}
	script := exec.Command("node", "live-on-air.mjs")
	script.Dir = "../sdk"
	script.Env = append(os.Environ(), "WEIR_URL="+w.URL+"/api", "WEIR_KEY="+w.Key, "WEIR_STAGE="+string(stage))
	// What the script has started ends with the test, however that ends.
	script.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said := &harness.LockedBuffer{}
	script.Stdout, script.Stderr = said, said
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-script.Process.Pid, syscall.SIGKILL) })
	err = script.Wait()
	t.Logf("%s", said)
	if err != nil {
		t.Errorf("live-on-air.mjs: %v\n%s", err, w.Output)
	}
	if strings.Contains(w.Output.String(), "hush") {
		t.Errorf("the log has the key of a target in it:\n%s", w.Output)
	}
	w.Stop()
}

// sdkClip is something to send of which a smaller rendition can be made.
func sdkClip(t *testing.T) string {
	t.Helper()
	return harness.MakeClip(t, "sdk.mp4", append(harness.Pictures("320x180", 25, 60),
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "50", "-b:v", "300k", "-c:a", "aac", "-b:a", "64k")...)
}
