package work

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/weir"
	"weir/internal/work/worktest"
)

// ladderOf waits for the task that makes the renditions of a recording.
func (s *studio) ladderOf(t *testing.T, id string) weir.Task {
	t.Helper()
	page, err := s.Store.Tasks(t.Context(), store.Query{UserID: s.caller.UserID, Where: []store.Filter{{ID: "outputAssetId", Value: id}}})
	page.Items = slices.DeleteFunc(page.Items, func(t weir.Task) bool { return t.Type == weir.TaskClip })
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("%d tasks, error %v; want the one of the recording", len(page.Items), err)
	}
	return s.until(t, page.Items[0].ID, phase(weir.TaskCompleted))
}

// A recording gets its renditions and thumbnails later: those that its stream sets of recordings,
// or the default ladder, or none.
func TestRecordingLadder(t *testing.T) {
	for _, tt := range []struct {
		name string
		spec *weir.RecordingSpec
		want []string
	}{
		{"default", nil, []string{"source", "low-bitrate"}},
		{"profiles", &weir.RecordingSpec{Profiles: []weir.Profile{{Name: "tiny", Width: 160, Height: 90, Bitrate: 50_000}}}, []string{"source", "tiny"}},
		{"none", &weir.RecordingSpec{Profiles: []weir.Profile{}}, []string{"source"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newFixture(t)
			s := newStudio(t, h)
			s.spec = tt.spec
			stream, session, air := s.onAir(t)
			frames := worktest.RecordFilm(t, filepath.Join(s.dir, session.ID))
			s.close(t, air, 4, 100)
			s.recorded(t, session.ID, weir.RecordingReady)
			task := s.ladderOf(t, session.ID)
			if task.Type != weir.TaskUpload || task.InputAssetID != session.ID || task.Output == nil || task.Output.Upload.AssetSpec.ID != session.ID {
				t.Errorf("the task is %+v", task)
			}
			asset, err := s.Store.Asset(t.Context(), session.ID)
			if err != nil || asset.Status.Phase != weir.AssetReady || asset.VideoSpec.Duration != 8 || asset.PlaybackURL == "" || asset.DownloadURL == "" {
				t.Fatalf("the asset is %+v, error %v", asset, err)
			}
			want := []string{"catalyst_hls_manifest index.m3u8", "static_transcoded_mp4 source.mp4"}
			if tt.want[len(tt.want)-1] == "tiny" {
				want = append(want, "static_transcoded_mp4 tiny.mp4")
			}
			want = append(want, "thumbnails_vtt thumbnails/thumbnails.vtt")
			var files []string
			for _, f := range asset.Files {
				files = append(files, f.Type+" "+f.Path)
			}
			if diff := cmp.Diff(want, files); diff != "" {
				t.Errorf("files of the asset (-want +got):\n%s", diff)
			}
			s.checkLadder(t, h, session.ID, tt.want, frames)
			all := names(s.events(t, s.caller, "asset/"+session.ID))
			if diff := cmp.Diff([]weir.EventName{weir.AssetCreated, weir.AssetUpdated, weir.AssetReadyEvent, weir.AssetUpdated}, all); diff != "" {
				t.Errorf("events of the asset (-want +got):\n%s", diff)
			}
			if all := names(s.events(t, s.caller, "stream/"+stream.ID)); slices.Index(all, weir.RecordingReadyEvent) != len(all)-1 {
				t.Errorf("events of the stream: %v", all)
			}
		})
	}
}

// checkLadder checks the presentation of a recording.
func (s *studio) checkLadder(t *testing.T, h *fixture, id string, want []string, frames int) {
	t.Helper()
	p, err := media.LoadPresentation(t.Context(), h.media, "asset/"+id)
	if err != nil || !p.Complete {
		t.Fatalf("presentation %+v, error %v", p, err)
	}
	var names []string
	for _, r := range p.Renditions {
		names = append(names, r.Name)
		track, err := media.Open(t.Context(), h.media, "asset/"+id+"/"+r.Dir)
		if err != nil {
			t.Fatal(err)
		}
		index := track.Index()
		if index.Frames() != frames || index.Track.Time(index.Start()) != 0 || index.Track.Time(index.End()).Seconds() != 38 {
			t.Errorf("%s has %d frames from %d to %d, want %d", r.Name, index.Frames(), index.Start(), index.End(), frames)
		}
		for n, segment := range index.Segments {
			if segment.Discontinuity != (n == 2) || segment.Wall.IsZero() {
				t.Errorf("segment %d of %s: discontinuity %v, %v", n, r.Name, segment.Discontinuity, segment.Wall)
			}
		}
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("renditions (-want +got):\n%s", diff)
	}
	for _, name := range []string{"poster.jpg", "thumbnails/thumbnails.vtt", "thumbnails/sprite_0.jpg"} {
		if _, err := h.media.Stat(t.Context(), "asset/"+id+"/"+name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	path, _ := h.media.Path("asset/" + id + "/poster.jpg")
	decodes(t, path)
}
