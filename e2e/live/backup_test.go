package live

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/e2e/harness"
)

// TestBackupWhileRecording makes a backup while two streams are recorded and a third is not. Then
// the machine is lost. Another machine that has only a copy of the backup, in another place, finishes
// both recordings and plays everything.
func TestBackupWhileRecording(t *testing.T) {
	t.Parallel()
	backupWhileRecording(t, harness.NewWeir(t))
}

func backupWhileRecording(t *testing.T, w *harness.Weir) {
	rtmp := harness.FreeAddr(t)
	w.Start("--rtmp", rtmp, "--session-timeout", "1h") // that of the other machine counts

	key := harness.Match(t, w.Run("key", "create", "another"), `API key +(\S+)`)

	// What was there before: an asset, and a recording that is finished.
	var imported struct {
		Asset struct{ ID, PlaybackID string }
		Task  struct{ ID string }
	}
	w.Must("POST", "/api/asset/upload/url", map[string]any{"name": "clip", "url": harness.NewOrigin(t, harness.TinyClip(t)).URL + "/clip.mp4"}, &imported)
	w.Completed(imported.Task.ID)
	earlier := newRecordedStream(w, rtmp)
	e := earlier.send(numbered(t, 1)[0])
	e.untilSent(60)
	e.stop()
	w.Must("DELETE", "/api/stream/"+earlier.id+"/terminate", nil, nil)
	earlier.waitRecorded("ready")

	recorded := []*liveStream{newRecordedStream(w, rtmp), newRecordedStream(w, rtmp)}
	passing := newStream(w, rtmp)
	var encoders []*encoder
	for _, s := range append(recorded, passing) {
		encoders = append(encoders, s.send(numbered(t, 1)[0]))
	}
	for _, s := range recorded {
		harness.Eventually(t, func() error {
			if all := s.sessions(); len(all) != 1 || all[0].SourceSegments < 3 {
				return fmt.Errorf("the sessions are %+v, want one with three segments", all)
			}
			return nil
		})
	}
	before := map[string]liveState{} // by stream
	for _, s := range recorded {
		before[s.id] = s.session()
	}
	dir := filepath.Join(t.TempDir(), "backup")
	if said := w.Run("backup", dir); !strings.Contains(said, "2 unfinished recordings") {
		t.Errorf("weir backup says:\n%s", said)
	}
	after := map[string]int64{} // frames that were sent
	for i, s := range recorded {
		after[s.id] = encoders[i].frames.Load()
		// It goes on, so that files that the backup shared with it would change.
		encoders[i].untilSent(after[s.id] + 100)
	}
	w.Kill()
	for _, e := range encoders {
		e.kill()
	}

	other := harness.NewWeir(t)
	other.Data = filepath.Join(t.TempDir(), "other")
	if err := os.CopyFS(other.Data, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	other.Database = "sqlite:" + filepath.Join(other.Data, "weir.db")
	for _, lost := range []string{w.Data, dir} {
		if err := os.RemoveAll(lost); err != nil {
			t.Fatal(err)
		}
	}
	other.Start("--rtmp", harness.FreeAddr(t), "--session-timeout", "3s")
	other.Key = key // the other one is in the settings of both machines
	for _, s := range recorded {
		s.w = other
		kept := s.waitRecorded("ready")
		if kept.ID != before[s.id].ID {
			t.Errorf("the recording is that of session %s, want %s", kept.ID, before[s.id].ID)
		}
		// At least what the API told before the backup, and at most what was sent until its end. Of
		// the second encoder there is nothing: with it, the tracks may end 0.4 s apart.
		least := &encoder{}
		least.frames.Store(int64(before[s.id].SourceSegmentsDuration * 25))
		frames := s.checkRecording(kept, []*encoder{least, {}})
		if int64(frames) > after[s.id]+25 {
			t.Errorf("the recording has %d frames, %d were sent until the end of the backup", frames, after[s.id])
		}
		s.checkPlayback(kept, frames)
	}
	earlier.w = other
	if shown := ffmpegReads(t, earlier.waitRecorded("ready").RecordingURL); shown["video"] < 50 {
		t.Errorf("the recording from before has %d frames", shown["video"])
	}
	if shown := ffmpegReads(t, other.URL+"/hls/"+imported.Asset.PlaybackID+"/index.m3u8"); shown["video"] == 0 || shown["video"]%50 != 0 {
		t.Errorf("the renditions of the asset from before have %d frames, want 50 each", shown["video"])
	}
	passing.w = other
	harness.Eventually(t, func() error {
		if s := passing.now(); s.IsActive {
			return fmt.Errorf("the stream that was not recorded is %+v", s)
		}
		return nil
	})
	other.Stop()
}
