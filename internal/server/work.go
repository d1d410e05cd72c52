package server

import (
	"cmp"
	"context"
	"path/filepath"
	"runtime"

	"weir/internal/blob"
	"weir/internal/config"
	"weir/internal/live"
	"weir/internal/store"
	"weir/internal/vod"
	"weir/internal/work"
)

// openWork makes the worker of tasks and other jobs, and what every node needs to know about clips.
func (s *server) openWork(context.Context) (err error) {
	clips := work.ClipOptions{
		Store: s.store, Media: s.media, Engine: vod.Engine{FFmpeg: s.engine, Store: s.media}, Ask: s.askForRanges,
		Signer: s.signer, Dir: s.cfg.WorkDir(), Base: s.cfg.EventBase(), Log: s.logger("clip"),
	}
	if s.hub != nil {
		clips.OnAir = s.hub
	}
	s.clips = work.NewClips(clips)
	if !s.cfg.Runs(config.Work) {
		return nil
	}
	s.work, err = work.New(work.Options{
		Store: s.store, Media: s.media, Fetcher: s.fetcher(), Decrypt: s.encryption.Decrypt,
		Engine: vod.Engine{FFmpeg: s.engine, Store: s.media, MaxDuration: s.cfg.MaxDuration},
		Caller: blob.Options{Guard: s.guard, Log: s.logger("blob")},
		IPFS:   s.workIPFS(),
		Dir:    s.cfg.WorkDir(), Base: s.cfg.EventBase(), MinFree: s.cfg.MinFree,
		Slots: cmp.Or(s.cfg.Workers, runtime.NumCPU()), MaxRunning: s.cfg.MaxRunningTasks,
		DeleteGrace: s.cfg.DeleteGrace, UploadExpiry: s.cfg.UploadExpiry, Drain: s.cfg.Drain,
		Signer: s.signer,
		Others: map[string]store.Handler{
			store.JobRecording: s.recordings().Keep, store.JobClip: s.clips.Cut, store.JobLiveClip: s.clips.Cut,
		},
		Log: s.logger("work"),
	})
	return err
}

// runLiveJobs runs the jobs of a node that runs live, but not work: it makes assets of its own
// recordings, and cuts clips out of its own streams.
func (s *server) runLiveJobs(ctx context.Context) error {
	own := map[string]store.Handler{store.JobRecording: s.recordings().Keep, store.JobLiveClip: s.clips.Cut}
	return s.store.RunJobs(ctx, store.Slots{}, s.cfg.Drain, own)
}

// recordings returns the job that makes assets of the sessions of this node.
func (s *server) recordings() *work.Recordings {
	dir := s.cfg.LiveDir()
	r := &work.Recordings{
		Store: s.store, Media: s.media, Signer: s.signer, Base: s.cfg.EventBase(), Log: s.logger("recording"),
		Period: live.Periods{Dir: dir, Node: s.store.NodeID(), Media: s.media, Ask: s.askForFiles}.Folder,
	}
	r.Folder = func(sessionID string) (string, error) { return filepath.Join(dir, sessionID), nil }
	if s.hub != nil {
		r.Folder = s.hub.Folder
	}
	return r
}

// fetcher returns the reader of sources from callers.
func (s *server) fetcher() *blob.Fetcher {
	return &blob.Fetcher{
		Guard: s.guard, MaxSize: s.cfg.MaxUpload, MaxDuration: s.cfg.MaxDuration,
		Gateways:  s.gateways(),
		FreeSpace: func(need int64) error { return blob.FreeSpaceAt(s.cfg.Data, s.cfg.MinFree, need) },
	}
}

func (s *server) gateways() blob.Gateways {
	return blob.Gateways{IPFS: s.cfg.IPFSGateways, Arweave: s.cfg.ArweaveGateways}
}
