package vod

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"weir/internal/publish"
	"weir/internal/weir"
)

// runState is stored in the folder of Run, so that a killed run can be continued. Each result has a file of its
// own.
type runState struct {
	dir string

	Job       string `json:"job"` // see jobOf
	RequestID string `json:"requestId"`
	Fetched   bool   `json:"fetched,omitempty"`
	Plan      *Plan  `json:"plan,omitempty"`

	Manifest *publish.SourceManifest `json:"manifest,omitempty"` // of the source

	Chunks    []ChunkResult     `json:"-"`
	Audio     []RenditionResult `json:"-"`
	Published publish.State     `json:"-"`
}

const (
	stateFile     = "run.json"
	publishedFile = "published.json"
	resultsFolder = "results"
)

// loadState returns the state of a run of the same job, or clears the folder.
func loadState(o RunOptions) (*runState, error) {
	job, err := jobOf(o)
	if err != nil {
		return nil, err
	}
	s := &runState{dir: o.Dir}
	if err := s.load(); err == nil && s.Job == job {
		return s, nil
	}
	if err := os.RemoveAll(o.Dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(o.Dir, resultsFolder), 0o700); err != nil {
		return nil, err
	}
	s = &runState{dir: o.Dir, Job: job, RequestID: publish.NewRequestID()}
	return s, s.save()
}

// jobOf describes a job: two runs with the same description give the same bytes.
func jobOf(o RunOptions) (string, error) {
	job := struct {
		Source  string
		Size    int64
		Changed int64
		Request Request
		Outputs weir.TranscodeOutputs
		Signed  bool
	}{Source: o.Source, Request: o.Request, Outputs: o.Outputs, Signed: o.Signer != nil}
	if !isURL(o.Source) {
		info, err := os.Stat(o.Source)
		if errors.Is(err, fs.ErrNotExist) {
			return "", weir.Errorf(weir.NotFound, "%s: no such file", o.Source)
		}
		if err != nil {
			return "", weir.Errorf(weir.Invalid, "%s: can't be read: %s", o.Source, err.Error())
		}
		if !info.Mode().IsRegular() {
			return "", weir.Errorf(weir.Invalid, "%s: not a regular file", o.Source)
		}
		job.Size, job.Changed = info.Size(), info.ModTime().UnixNano()
	}
	data, err := json.Marshal(job)
	return string(data), err
}

func isURL(source string) bool { return strings.Contains(source, "://") }

func (s *runState) load() error {
	if err := s.read(stateFile, s); err != nil {
		return err
	}
	if err := s.read(publishedFile, &s.Published); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	files, err := filepath.Glob(filepath.Join(s.dir, resultsFolder, "*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		name := filepath.Join(resultsFolder, filepath.Base(file))
		var chunk ChunkResult
		var audio RenditionResult
		switch {
		case strings.HasPrefix(filepath.Base(file), "chunk"):
			err = s.read(name, &chunk)
			s.Chunks = append(s.Chunks, chunk)
		default:
			err = s.read(name, &audio)
			s.Audio = append(s.Audio, audio)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *runState) save() error { return s.write(stateFile, s) }

func (s *runState) savePublished(p *publish.State) error { return s.write(publishedFile, p) }

func (s *runState) addChunk(r ChunkResult) error {
	s.Chunks = append(s.Chunks, r)
	return s.write(filepath.Join(resultsFolder, "chunk"+strconv.Itoa(r.Chunk)+".json"), r)
}

func (s *runState) addAudio(r RenditionResult) error {
	s.Audio = append(s.Audio, r)
	return s.write(filepath.Join(resultsFolder, r.Name+".json"), r)
}

func (s *runState) read(name string, value any) error {
	data, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		return err
	}
	return json.Unmarshal(data, value)
}

// write replaces a file atomically.
func (s *runState) write(name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
