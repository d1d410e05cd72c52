package work

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/wait"
	"weir/internal/weir"
	"weir/internal/work/worktest"
)

// studio is a node that receives streams and records them.
type studio struct {
	*node
	caller *weir.Caller
	dir    string // of the sessions
	spec   *weir.RecordingSpec
	busy   atomic.Int64
}

func newStudio(t *testing.T, h *fixture) *studio {
	t.Helper()
	return newStudioWith(t, h, func(*Options) {})
}

// newStudioWith is newStudio with other options of the node.
func newStudioWith(t *testing.T, h *fixture, change func(*Options)) *studio {
	t.Helper()
	s := &studio{dir: t.TempDir()}
	h.options = func(o *Options) {
		r := &Recordings{Store: o.Store, Media: o.Media, Signer: o.Signer, Base: o.Base, Log: o.Log, Folder: func(id string) (string, error) {
			if s.busy.Add(-1) >= 0 {
				return "", weir.Errorf(weir.Busy, "the session is still being written")
			}
			return filepath.Join(s.dir, id), nil
		}}
		o.Others = map[string]store.Handler{store.JobRecording: r.Keep}
		change(o)
	}
	s.node = h.node(t, "here")
	s.caller = s.account(t, "ann")
	return s
}

// onAir begins a broadcast that is recorded.
func (s *studio) onAir(t *testing.T) (weir.Stream, weir.Session, store.OnAir) {
	t.Helper()
	stream, err := weir.NewStream{Name: "show", Profiles: &[]weir.Profile{}, Record: true, RecordingSpec: s.spec, PlaybackPolicy: &weir.PlaybackPolicy{Type: weir.PolicyJWT}, C2PA: s.Signer != nil}.Stream(s.caller, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s.inTx(t, func(tx *store.Tx) error { return tx.CreateStream(t.Context(), &stream) })
	var session weir.Session
	var air store.OnAir
	s.inTx(t, func(tx *store.Tx) (err error) {
		session, air, err = tx.GoOnAir(t.Context(), stream, time.Minute, time.Now())
		return err
	})
	return stream, session, air
}

// beat reports how a broadcast that is on air came.
func (s *studio) beat(t *testing.T, air store.OnAir, protocol string) {
	t.Helper()
	beat := store.Beat{StreamID: air.StreamID, Epoch: air.Epoch, SeenAt: weir.At(time.Now()), Received: weir.Received{Protocols: []string{protocol}}}
	s.inTx(t, func(tx *store.Tx) error {
		_, err := tx.RenewOnAir(t.Context(), []store.Beat{beat}, time.Now())
		return err
	})
}

// close ends a broadcast.
func (s *studio) close(t *testing.T, air store.OnAir, segments, bytes int64) {
	t.Helper()
	s.closeRecorded(t, air, segments, bytes, bytes)
}

// closeRecorded is close of a session of which only some bytes were recorded.
func (s *studio) closeRecorded(t *testing.T, air store.OnAir, segments, bytes, recorded int64) {
	t.Helper()
	last := store.Beat{
		StreamID: air.StreamID, Epoch: air.Epoch, SeenAt: weir.At(time.Now()), RecordedBytes: recorded,
		Received: weir.Received{Protocols: []string{"rtmp"}}, Counters: weir.Counters{SourceSegments: segments, SourceBytes: bytes},
	}
	s.inTx(t, func(tx *store.Tx) error {
		_, err := tx.CloseSession(t.Context(), last, time.Now())
		return err
	})
}

// recorded waits until a session says so of its recording.
func (s *studio) recorded(t *testing.T, id, status string) weir.Session {
	t.Helper()
	var session weir.Session
	wait.Until(t, "the recording is "+status, func() bool {
		assets, err := s.Store.RecordingAssets(t.Context(), []string{id})
		if err == nil {
			session, err = s.Store.Session(t.Context(), id)
		}
		if err != nil {
			t.Fatal(err)
		}
		var asset *weir.Asset
		if a, ok := assets[id]; ok {
			asset = &a
		}
		session.SetRecording(asset, weir.At(time.Now()))
		return session.RecordingStatus == status
	})
	return session
}

func TestRecording(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	h := newFixture(t)
	s := newStudio(t, h)
	stream, session, air := s.onAir(t)
	worktest.Record(t, filepath.Join(s.dir, session.ID), 3)
	s.busy.Store(1) // it is tried again
	s.close(t, air, 3, 100)
	s.recorded(t, session.ID, weir.RecordingReady)

	asset, err := s.Store.Asset(t.Context(), session.ID)
	if err != nil {
		t.Fatal(err)
	}
	at := "/hls/" + asset.PlaybackID + "/"
	want := weir.Asset{
		ID: session.ID, Name: "show " + session.CreatedAt.Time().UTC().Format("2006-01-02T15:04") + "Z", Type: "audio", PlaybackID: asset.PlaybackID,
		UserID: s.caller.UserID, ProjectID: s.caller.ProjectID, CreatedAt: session.CreatedAt, PlaybackPolicy: stream.PlaybackPolicy,
		Source: weir.AssetSource{Type: weir.SourceRecording, SessionID: session.ID}, Status: weir.AssetStatus{Phase: weir.AssetReady, UpdatedAt: asset.Status.UpdatedAt},
		PlaybackURL: at + "index.m3u8", DownloadURL: at + "download/video.mp4", Size: asset.Size,
		VideoSpec: &weir.VideoSpec{Format: "mp4", Duration: 3, Bitrate: asset.VideoSpec.Bitrate, Tracks: []weir.Track{
			{Type: "audio", Codec: "aac", Duration: 3, Bitrate: asset.VideoSpec.Bitrate, Channels: 2, SampleRate: 48000},
		}},
		Files: []weir.File{
			{Type: "catalyst_hls_manifest", Path: "index.m3u8"},
			{Type: "static_transcoded_mp4", Path: "audio.mp4", Size: asset.Size, Bitrate: int(asset.VideoSpec.Bitrate)},
		},
	}
	for info, err := range h.media.List(t.Context(), "asset/"+session.ID) {
		if err != nil {
			t.Fatal(err)
		}
		want.Stored += info.Size
	}
	if diff := cmp.Diff(want, asset); diff != "" || asset.Size < 100 || asset.VideoSpec.Bitrate <= 0 {
		t.Errorf("asset (-want +got):\n%s", diff)
	}
	p, err := media.LoadPresentation(t.Context(), h.media, "asset/"+session.ID)
	if err != nil || !p.Complete || p.Duration != 3 || len(p.Audio) != 1 {
		t.Errorf("presentation %+v, error %v", p, err)
	}
	if diff := cmp.Diff([]weir.EventName{weir.StreamStarted, weir.RecordingStartedEvent, weir.StreamIdle, weir.RecordingWaitingEvent, weir.RecordingReadyEvent},
		names(s.events(t, s.caller, "stream/"+stream.ID))); diff != "" {
		t.Errorf("events of the stream (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]weir.EventName{weir.AssetCreated, weir.AssetUpdated, weir.AssetReadyEvent}, names(s.events(t, s.caller, "asset/"+session.ID))); diff != "" {
		t.Errorf("events of the asset (-want +got):\n%s", diff)
	}
	s.checkReady(t, stream, asset)
	s.checkExport(t, asset)

	// A node that was killed before it could note that the job is done does it again.
	s.inTx(t, func(tx *store.Tx) error { return tx.Enqueue(t.Context(), store.JobRecording, session.ID+"/here") })
	wait.Until(t, "the job is done again", func() bool { return s.idle(t) })
	if again, err := s.Store.Asset(t.Context(), session.ID); err != nil || !cmp.Equal(asset, again) {
		t.Errorf("done again, the asset is %+v, error %v", again, err)
	}
}

// checkReady checks the event recording.ready.
func (s *studio) checkReady(t *testing.T, stream weir.Stream, asset weir.Asset) {
	t.Helper()
	all := s.events(t, s.caller, "stream/"+stream.ID)
	var ready struct {
		RecordingURL, MP4URL string
		Session              struct{ ID, AssetID, RecordingStatus, RecordingURL, MP4URL string }
	}
	if err := json.Unmarshal(all[len(all)-1].Payload, &ready); err != nil {
		t.Fatal(err)
	}
	playlist, file := "https://weir.example"+asset.PlaybackURL, "https://weir.example"+asset.DownloadURL
	if ready.RecordingURL != playlist || ready.MP4URL != file || ready.Session.RecordingURL != playlist || ready.Session.MP4URL != file ||
		ready.Session.ID != asset.ID || ready.Session.AssetID != asset.ID || ready.Session.RecordingStatus != weir.RecordingReady {
		t.Errorf("recording.ready has %+v", ready)
	}
}

// checkExport sends the file of a recording somewhere.
func (s *studio) checkExport(t *testing.T, asset weir.Asset) {
	t.Helper()
	arrived := make(chan int, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil || !bytes.Contains(data, []byte("soundsoundsound")) {
			t.Errorf("a file of %d bytes arrived that is not the recording; error %v", len(data), err)
		}
		arrived <- len(data)
	}))
	defer server.Close()
	task := weir.Task{
		ID: weir.NewID(), Type: weir.TaskExport, CreatedAt: weir.At(time.Now()), UserID: s.caller.UserID, ProjectID: s.caller.ProjectID, InputAssetID: asset.ID,
		Params:  weir.TaskParams{Export: &weir.ExportParams{Custom: &weir.CustomExport{URL: server.URL, Method: http.MethodPut}}},
		Secrets: weir.TaskSecrets{ExportURL: server.URL},
	}
	task.Queue(time.Now())
	s.inTx(t, func(tx *store.Tx) error { return tx.CreateTask(t.Context(), &task) })
	s.until(t, task.ID, phase(weir.TaskCompleted))
	if size := <-arrived; int64(size) != asset.Size {
		t.Errorf("%d bytes arrived, want %d", size, asset.Size)
	}
}

// idle reports whether no job waits or runs.
func (s *studio) idle(t *testing.T) bool {
	t.Helper()
	stats, err := s.Store.JobStats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range stats {
		if n > 0 {
			return false
		}
	}
	return true
}

func TestRecordingWithoutMedia(t *testing.T) {
	s := newStudio(t, newFixture(t))
	_, silent, air := s.onAir(t)
	s.close(t, air, 0, 0)
	s.recorded(t, silent.ID, weir.RecordingNone)
	_, short, air := s.onAir(t)
	s.close(t, air, 0, 100) // something was received, but no key frame
	s.recorded(t, short.ID, weir.RecordingNone)
	_, ended, air := s.onAir(t)
	s.closeRecorded(t, air, 3, 100, 0) // the recording had ended before the first key frame
	s.recorded(t, ended.ID, weir.RecordingNone)
	none, err := s.Store.Sessions(t.Context(), store.Query{UserID: s.caller.UserID, Where: []store.Filter{{ID: "recordingStatus", Value: weir.RecordingNone}}})
	if err != nil || len(none.Items) != 3 {
		t.Errorf("%d sessions without a recording are found, want 3; error %v", len(none.Items), err)
	}
	// Files that were received and deleted are an error.
	_, lost, air := s.onAir(t)
	s.close(t, air, 3, 100)
	s.recorded(t, lost.ID, weir.RecordingFailed)
	asset, err := s.Store.Asset(t.Context(), lost.ID)
	if err != nil || asset.Status.ErrorMessage != "the files of the recording are not on the server any more" {
		t.Errorf("the asset is %+v, error %v", asset.Status, err)
	}
	if after, err := s.Store.Session(t.Context(), lost.ID); err != nil || after.RecordedBytes != 0 {
		t.Errorf("with an asset %d bytes of the recording are counted, error %v", after.RecordedBytes, err)
	}
	if all := names(s.events(t, s.caller, "asset/"+lost.ID)); !slices.Contains(all, weir.AssetFailedEvent) || slices.Contains(all, weir.AssetReadyEvent) {
		t.Errorf("events of the asset: %v", all)
	}
}

// A session that another node has carried is that node's to keep.
func TestRecordingOnOriginNode(t *testing.T) {
	h := newFixture(t)
	s := newStudio(t, h)
	there := h.open(t, "there")
	_, session, _ := s.onAir(t)
	worktest.Record(t, filepath.Join(s.dir, session.ID), 1)
	stream, err := s.Store.Stream(t.Context(), session.ParentID)
	if err != nil {
		t.Fatal(err)
	}
	var air store.OnAir
	if err := there.Tx(t.Context(), func(tx *store.Tx) (err error) {
		_, air, err = tx.GoOnAir(t.Context(), stream, time.Minute, time.Now())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s.close(t, air, 1, 100)
	stats, err := s.Store.JobStats(t.Context())
	if err != nil || stats[[2]string{"node-there", "available"}] != 1 {
		t.Errorf("jobs: %v, error %v; want one for the other node", stats, err)
	}
	jobs := make(chan string, 1)
	h.options = func(o *Options) {
		o.Others = map[string]store.Handler{store.JobRecording: func(_ context.Context, job store.Job) error {
			jobs <- job.Ref
			return nil
		}}
	}
	h.node(t, "there")
	if ref := <-jobs; ref != session.ID+"/there" {
		t.Errorf("the other node was given %s", ref)
	}
	if _, err := os.Stat(filepath.Join(s.dir, session.ID)); err != nil {
		t.Errorf("the files of this node are deleted: %v", err)
	}
}
