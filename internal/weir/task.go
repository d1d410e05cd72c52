package weir

import (
	"encoding/json"
	"math"
	"strings"
	"time"
)

// Task is something that the service does in the background, such as an import or a transcode.
type Task struct {
	ID            string      `json:"id"`
	Type          TaskType    `json:"type"`
	CreatedAt     Millis      `json:"createdAt"`
	ScheduledAt   Millis      `json:"scheduledAt,omitempty"`
	UserID        string      `json:"userId"`
	ProjectID     string      `json:"projectId,omitempty"`
	InputAssetID  string      `json:"inputAssetId,omitempty"`
	OutputAssetID string      `json:"outputAssetId,omitempty"`
	RequesterID   string      `json:"requesterId,omitempty"`
	Params        TaskParams  `json:"params"`
	Status        TaskStatus  `json:"status"`
	Output        *TaskOutput `json:"output,omitempty"`

	Secrets TaskSecrets `json:"-"` // sealed, and deleted a while after the end
}

// TaskType is what a task does.
type TaskType string

// The types of tasks.
const (
	TaskUpload     TaskType = "upload"
	TaskExport     TaskType = "export"
	TaskExportData TaskType = "export-data"
	TaskTranscode  TaskType = "transcode-file"
	TaskClip       TaskType = "clip"
)

// TaskPhase is the state of a task.
type TaskPhase string

// The phases of a task.
const (
	TaskPending   TaskPhase = "pending"
	TaskWaiting   TaskPhase = "waiting"
	TaskRunning   TaskPhase = "running"
	TaskFailed    TaskPhase = "failed"
	TaskCompleted TaskPhase = "completed"
	TaskCancelled TaskPhase = "cancelled"
)

// TaskStatus is the state of a task, and since when.
type TaskStatus struct {
	Phase        TaskPhase `json:"phase"`
	UpdatedAt    Millis    `json:"updatedAt"`
	Progress     *float64  `json:"progress,omitempty"`
	ErrorMessage string    `json:"errorMessage,omitempty"`
	Retries      *int      `json:"retries,omitempty"`
	Step         string    `json:"step,omitempty"` // a stage, for people
	ETA          Millis    `json:"eta,omitempty"`
	Warnings     []string  `json:"warnings,omitempty"` // of a completed task: damage in its source
}

// TaskParams are the parameters of a task: one member, named after its type. Secrets show as stars;
// their values are in TaskSecrets.
type TaskParams struct {
	Upload     *UploadParams     `json:"upload,omitempty"`
	Export     *ExportParams     `json:"export,omitempty"`
	ExportData *ExportDataParams `json:"exportData,omitempty"`
	Transcode  *TranscodeParams  `json:"transcode-file,omitempty"`
	Clip       *ClipParams       `json:"clip,omitempty"`
}

// UploadParams are those of a task that makes an asset from a source.
type UploadParams struct {
	URL                   string     `json:"url,omitempty"`
	Encryption            *MaskedKey `json:"encryption,omitempty"`
	C2PA                  bool       `json:"c2pa,omitempty"`
	Profiles              []Profile  `json:"profiles,omitempty"`
	TargetSegmentSizeSecs int        `json:"targetSegmentSizeSecs,omitempty"`
}

// MaskedKey replaces a key.
type MaskedKey struct {
	Key string `json:"key"`
}

// ExportParams are those of a task that copies an asset to another place.
type ExportParams struct {
	Custom *CustomExport `json:"custom,omitempty"`
	IPFS   *IPFSExport   `json:"ipfs,omitempty"`
}

// CustomExport sends an asset to a URL of the caller.
type CustomExport struct {
	URL     string            `json:"url"`
	Method  string            `json:"method,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// IPFSExport sends an asset to IPFS.
type IPFSExport struct {
	NFTMetadataTemplate string          `json:"nftMetadataTemplate,omitempty"`
	NFTMetadata         json.RawMessage `json:"nftMetadata,omitempty"`
	Pinata              *Pinata         `json:"pinata,omitempty"`
}

// Pinata is an account at a pinning service.
type Pinata struct {
	JWT       string `json:"jwt,omitempty"`
	APIKey    string `json:"apiKey,omitempty"`
	APISecret string `json:"apiSecret,omitempty"`
}

// ExportDataParams are those of a task that sends metadata to IPFS.
type ExportDataParams struct {
	Content json.RawMessage `json:"content,omitempty"`
	Type    string          `json:"type,omitempty"`
	ID      string          `json:"id,omitempty"`
}

// TranscodeParams are those of a task that makes renditions of a file in the caller's own storage.
type TranscodeParams struct {
	Input                 URLParam         `json:"input"`
	Storage               URLParam         `json:"storage"`
	Outputs               TranscodeOutputs `json:"outputs"`
	Profiles              []Profile        `json:"profiles,omitempty"`
	TargetSegmentSizeSecs int              `json:"targetSegmentSizeSecs,omitempty"`
	CreatorID             *CreatorID       `json:"creatorId,omitempty"`
	C2PA                  bool             `json:"c2pa"`
	Text                  *bool            `json:"text,omitempty"` // false = text of the input is left out
}

// WithText reports whether the task imports the text of its source.
func (t *Task) WithText() bool {
	return t.Type == TaskUpload || t.Params.Transcode != nil && t.Params.Transcode.Text == nil
}

// URLParam is a URL with its credentials as stars.
type URLParam struct {
	URL string `json:"url"`
}

// TranscodeOutputs has the path of each output format.
type TranscodeOutputs struct {
	HLS  *PathParam `json:"hls,omitempty"`
	MP4  *PathParam `json:"mp4,omitempty"`
	FMP4 *PathParam `json:"fmp4,omitempty"`
}

// PathParam is a path in the caller's storage.
type PathParam struct {
	Path string `json:"path"`
}

// ClipParams are those of a task that cuts a clip out of a stream.
type ClipParams struct {
	URL          string        `json:"url,omitempty"`
	ClipStrategy *ClipStrategy `json:"clipStrategy,omitempty"`
	SessionID    string        `json:"sessionId,omitempty"`
	InputID      string        `json:"inputId,omitempty"`
	C2PA         bool          `json:"c2pa,omitempty"`
}

// ClipStrategy is the range of a clip.
type ClipStrategy struct {
	StartTime  float64 `json:"startTime"`
	EndTime    float64 `json:"endTime"`
	PlaybackID string  `json:"playbackId"`
}

// TaskOutput is the result of a task: one member, named after its type.
type TaskOutput struct {
	Upload     *AssetOutput      `json:"upload,omitempty"`
	Clip       *AssetOutput      `json:"clip,omitempty"`
	Export     *ExportOutput     `json:"export,omitempty"`
	ExportData *ExportDataOutput `json:"exportData,omitempty"`
	Transcode  *TranscodeOutput  `json:"transcodeFile,omitempty"`
}

// AssetOutput is the asset that a task made.
type AssetOutput struct {
	AssetSpec Asset `json:"assetSpec"`
}

// ExportOutput says where an asset was copied to.
type ExportOutput struct {
	IPFS *IPFSOutput `json:"ipfs,omitempty"`
}

// IPFSOutput is an asset on IPFS.
type IPFSOutput struct {
	VideoFileCID          string `json:"videoFileCid"`
	VideoFileURL          string `json:"videoFileUrl,omitempty"`
	VideoFileGatewayURL   string `json:"videoFileGatewayUrl,omitempty"`
	NFTMetadataCID        string `json:"nftMetadataCid,omitempty"`
	NFTMetadataURL        string `json:"nftMetadataUrl,omitempty"`
	NFTMetadataGatewayURL string `json:"nftMetadataGatewayUrl,omitempty"`
}

// ExportDataOutput is metadata on IPFS.
type ExportDataOutput struct {
	IPFS struct {
		CID string `json:"cid"`
	} `json:"ipfs"`
}

// TranscodeOutput lists what a transcode task wrote into the caller's storage. All paths are
// relative to BaseURL and start with a slash.
type TranscodeOutput struct {
	BaseURL    string            `json:"baseUrl"`
	HLS        *PathParam        `json:"hls,omitempty"`  // the master playlist
	MP4        []PathParam       `json:"mp4,omitempty"`  // one a rendition, in the order of the ladder
	FMP4       *FMP4Output       `json:"fmp4,omitempty"` // the manifests of the fragmented files
	C2PA       []Provenance      `json:"c2pa,omitempty"` // what was signed
	Renditions []RenditionOutput `json:"renditions"`
	VideoSpec  *VideoSpec        `json:"videoSpec,omitempty"` // of the source
	RequestID  string            `json:"request_id"`
	InputVideo InputVideo        `json:"input_video"`
}

// FMP4Output names the manifests of single fragmented MP4 files.
type FMP4Output struct {
	Path string `json:"path"` // the HLS master playlist
	DASH string `json:"dash"` // the DASH manifest
}

// RenditionOutput is a rendition as it was encoded, not as it was requested.
type RenditionOutput struct {
	Name     string  `json:"name"`
	Codec    string  `json:"codec"` // as in RFC 6381, with that of the audio
	Width    int     `json:"width,omitempty"`
	Height   int     `json:"height,omitempty"`
	FPS      float64 `json:"fps,omitempty"`
	Bitrate  int64   `json:"bitrate"`            // bits per second on average; of the video alone if there is video
	Size     int64   `json:"size"`               // bytes of the MP4 file; else of playlist and segments; else of the fragmented file
	Playlist string  `json:"playlist,omitempty"` // HLS media playlist
	MP4      string  `json:"mp4,omitempty"`
	FMP4     string  `json:"fmp4,omitempty"`
}

// InputVideo is the source of a transcode task.
type InputVideo struct {
	Duration float64 `json:"duration"` // seconds
	Size     int64   `json:"size"`     // bytes
}

// TaskSecrets are the credentials of a task.
type TaskSecrets struct {
	EncryptedKey  string            `json:"encryptedKey,omitempty"`
	InputURL      string            `json:"inputUrl,omitempty"`
	StorageURL    string            `json:"storageUrl,omitempty"`
	ExportURL     string            `json:"exportUrl,omitempty"`
	ExportHeaders map[string]string `json:"exportHeaders,omitempty"`
	Pinata        *Pinata           `json:"pinata,omitempty"`
	Proof         string            `json:"proof,omitempty"` // a UCAN delegation of the space that gets the outputs
	Gone          bool              `json:"gone,omitempty"`  // there were credentials, and they were deleted
	// Viewer is the network of the viewer who asked for a clip, until it has ended; "" = a caller did.
	Viewer string `json:"viewer,omitempty"`
}

// InputURL returns the URL of the task's source with its credentials; "" = it has none.
func (t Task) InputURL() string {
	switch {
	case t.Secrets.InputURL != "":
		return t.Secrets.InputURL
	case t.Params.Transcode != nil:
		return t.Params.Transcode.Input.URL
	case t.Params.Upload != nil:
		return t.Params.Upload.URL
	}
	return ""
}

// OnIPFS reports whether the outputs of a transcode task go to a space on IPFS.
func (t *Task) OnIPFS() bool {
	return t.Params.Transcode != nil && strings.HasPrefix(t.Params.Transcode.Storage.URL, spaceScheme)
}

// newTask returns a pending task of the caller.
func newTask(kind TaskType, caller *Caller, now time.Time) Task {
	return Task{
		ID: NewID(), Type: kind, CreatedAt: At(now), UserID: caller.UserID, ProjectID: caller.ProjectID,
		Status: TaskStatus{Phase: TaskPending, UpdatedAt: At(now)},
	}
}

// NewExport returns the task that exports an asset. Credentials go into the task's secrets; the
// parameters keep stars.
func NewExport(p ExportParams, a Asset, caller *Caller, now time.Time) Task {
	t := newTask(TaskExport, caller, now)
	t.InputAssetID = a.ID
	if p.Custom != nil {
		t.Secrets.ExportURL, t.Secrets.ExportHeaders = p.Custom.URL, p.Custom.Headers
		headers := map[string]string{}
		for name := range p.Custom.Headers {
			headers[name] = mask
		}
		t.Params.Export = &ExportParams{Custom: &CustomExport{withoutCredentials(p.Custom.URL), p.Custom.Method, headers}}
	} else {
		masked := *p.IPFS
		t.Secrets.Pinata = p.IPFS.Pinata
		if p.IPFS.Pinata != nil {
			masked.Pinata = p.IPFS.Pinata.masked()
		}
		t.Params.Export = &ExportParams{IPFS: &masked}
	}
	t.Queue(now)
	return t
}

func (p *Pinata) masked() *Pinata {
	if p.JWT != "" {
		return &Pinata{JWT: mask}
	}
	return &Pinata{APIKey: mask, APISecret: mask}
}

// Queue puts a task into the queue.
func (t *Task) Queue(now time.Time) {
	if t.ScheduledAt == 0 {
		t.ScheduledAt = At(now)
	}
	t.Status = TaskStatus{Phase: TaskWaiting, UpdatedAt: At(now), Retries: new(0)}
}

// Done reports whether the task has ended.
func (t *Task) Done() bool {
	return t.Status.Phase == TaskCompleted || t.Status.Phase == TaskFailed || t.Status.Phase == TaskCancelled
}

// Retry puts a task that has failed into the queue again.
func (t *Task) Retry(now time.Time) error {
	if t.Status.Phase != TaskFailed && t.Status.Phase != TaskCancelled {
		return Errorf(Refused, "task is not in a retryable state")
	}
	if t.ScheduledAt == 0 {
		return &Error{Kind: Refused, Messages: []string{"task is not in a retryable state", "its file was never uploaded: request a new upload"}}
	}
	if t.Secrets.Gone {
		return Errorf(Invalid, "the credentials of the task are deleted, because it ended long ago; send the request again")
	}
	t.Queue(now)
	return nil
}

// Cancel ends a task that has not ended yet.
func (t *Task) Cancel(now time.Time) error {
	if t.Done() {
		return Errorf(Refused, "task is not in a cancellable state")
	}
	t.Status = TaskStatus{Phase: TaskCancelled, UpdatedAt: At(now)}
	return nil
}

// Start begins a task that was admitted, or continues it after its node was lost. It reports
// whether there is anything to do.
func (t *Task) Start(progress float64, now time.Time) bool {
	if t.Status.Phase != TaskWaiting && t.Status.Phase != TaskRunning {
		return false
	}
	if t.Status.Phase == TaskRunning && t.Status.Progress != nil {
		progress = max(progress, *t.Status.Progress)
	}
	t.Status = TaskStatus{Phase: TaskRunning, UpdatedAt: At(now), Retries: t.Status.Retries, Progress: new(round3(progress)), Step: t.Status.Step}
	return true
}

// Advance sets the progress of a task. The progress never falls, and is 1 only at the end. Advance
// reports whether anything visible changed.
func (t *Task) Advance(step string, progress float64, eta, now time.Time) bool {
	if t.Status.Phase != TaskRunning {
		return false
	}
	s := t.Status
	progress = round3(min(progress, 0.999))
	if s.Progress != nil {
		progress = max(progress, *s.Progress)
	}
	var end Millis
	if !eta.IsZero() {
		end = At(eta)
	}
	if s.Progress != nil && progress == *s.Progress && step == s.Step {
		return false
	}
	t.Status = TaskStatus{Phase: TaskRunning, UpdatedAt: At(now), Retries: s.Retries, Progress: new(progress), Step: step, ETA: end}
	return true
}

func round3(x float64) float64 { return math.Round(x*1000) / 1000 }

// maxRetries is how often a failed task is retried automatically.
const maxRetries = 2

// Requeue puts a running task into the queue again, after a failure that may not recur. It reports
// whether there is a retry left; if not, the task stays as it is.
func (t *Task) Requeue(message string, now time.Time) (retry int, ok bool) {
	if t.Status.Retries != nil {
		retry = *t.Status.Retries
	}
	if retry >= maxRetries {
		return retry, false
	}
	retry++
	t.Status = TaskStatus{Phase: TaskWaiting, UpdatedAt: At(now), Retries: new(retry), ErrorMessage: message}
	return retry, true
}

// Complete ends a task with its result, and with warnings for its owner.
func (t *Task) Complete(output *TaskOutput, warnings []string, now time.Time) {
	t.Output = output
	t.Status = TaskStatus{Phase: TaskCompleted, UpdatedAt: At(now), Progress: new(1.0), Warnings: warnings}
}

// IPFSSpec returns the spec of the copy to IPFS that the task makes, nil when it makes none.
func (t *Task) IPFSSpec() *IPFSSpec {
	if p := t.Params.Export; p != nil && p.IPFS != nil {
		return &IPFSSpec{NFTMetadataTemplate: p.IPFS.NFTMetadataTemplate, NFTMetadata: p.IPFS.NFTMetadata}
	}
	if t.Output != nil && t.Output.Upload != nil {
		if s := t.Output.Upload.AssetSpec.Storage; s != nil && s.IPFS != nil {
			return s.IPFS.Spec
		}
	}
	return nil
}

// Fail ends a task with a sentence that its owner can act on.
func (t *Task) Fail(message string, now time.Time) {
	t.Status = TaskStatus{Phase: TaskFailed, UpdatedAt: At(now), ErrorMessage: message, Retries: t.Status.Retries}
}
