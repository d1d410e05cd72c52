//go:build soak

package vod

import (
	"net/http"
	"regexp"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	words "weir/internal/weir"
)

// TestFaultsSoak has the faults that take minutes to be given up on.
// `make soak-vod-faults` runs it.
func TestFaultsSoak(t *testing.T) {
	f := newFaults(t)
	storage := f.storage(noTrouble)
	good := f.server(http.HandlerFunc(f.good))
	f.Completed(f.post("/warm", good, storage))
	idle := f.goroutines()

	hung := f.disturbEncoder("/hung", storage, func(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) })
	lies := f.post("/lies", f.server(f.badSources()["lies"]), storage)
	stalls := f.post("/stalls", f.server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(f.source)))
		w.Header().Set("Last-Modified", time.Unix(1e9, 0).UTC().Format(http.TimeFormat))
		if r.Header.Get("If-Range") == "" {
			_, _ = w.Write(f.source[:len(f.source)/2])
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})), storage)
	var checked atomic.Bool // what is asked when the request arrives is answered
	away := f.post("/away", good, f.storage(func(r *http.Request) trouble {
		if checked.Load() {
			return throttled
		}
		return passes
	}))
	checked.Store(true)

	f.again(away, `^error saving file to storage: .*SlowDown`)
	f.again(hung, `^execution timeout: ffmpeg made no progress`)
	f.again(stalls, `^file could not be imported from URL because it was not accessible: .* promised [0-9]+ bytes and broke off`)
	f.Completed(hung)
	f.Must("POST", "/api/task/"+stalls+"/cancel", nil, nil)
	for id, why := range map[string]string{lies: `promised [0-9]+ bytes`, away: `^error saving file to storage: .*SlowDown`} {
		s := f.Ended(id).Status
		if s.Phase != words.TaskFailed || s.Retries == nil || *s.Retries != 2 || !regexp.MustCompile(why).MatchString(s.ErrorMessage) {
			t.Errorf("the task is %+v, want it to have failed after two retries because of %q", s, why)
		}
	}
	f.outputsPlay("hung")
	f.leavesNothing(idle)
	f.Stop()
}
