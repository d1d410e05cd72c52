package weir

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"time"
)

// Asset is stored video (or audio) that can be played.
type Asset struct {
	ID                 string          `json:"id"`
	Name               string          `json:"name"`
	Type               string          `json:"type,omitempty"` // video or audio, once it is known
	PlaybackID         string          `json:"playbackId"`
	UserID             string          `json:"userId"`
	ProjectID          string          `json:"projectId"`
	CreatedAt          Millis          `json:"createdAt"`
	CreatedByTokenName string          `json:"createdByTokenName,omitempty"`
	Source             AssetSource     `json:"source"`
	CreatorID          *CreatorID      `json:"creatorId,omitempty"`
	PlaybackPolicy     *PlaybackPolicy `json:"playbackPolicy,omitempty"`
	Profiles           []Profile       `json:"profiles,omitempty"`
	Storage            *AssetStorage   `json:"storage,omitempty"`
	Status             AssetStatus     `json:"status"`
	PlaybackURL        string          `json:"playbackUrl,omitempty"`
	DownloadURL        string          `json:"downloadUrl,omitempty"`
	Size               int64           `json:"size,omitempty"`
	Hash               []Hash          `json:"hash,omitempty"`
	VideoSpec          *VideoSpec      `json:"videoSpec,omitempty"`
	C2PA               *Provenance     `json:"c2pa,omitempty"` // of what is played; nil = it is not signed, or not yet

	// These fields are stored and not shown.
	StaticMP4     bool         `json:"-"`
	Sign          bool         `json:"-"` // it is only played signed
	ObjectStoreID string       `json:"-"`
	Deleted       bool         `json:"-"`
	DeletedAt     Millis       `json:"-"`
	Files         []File       `json:"-"`
	Stored        int64        `json:"-"` // bytes in weir's storage, until they are purged
	Tracks        []AssetTrack `json:"-"` // of text and audio beside the video
}

// AssetSource says where an asset came from. Only the members of its type are set: SDKs refuse
// others.
type AssetSource struct {
	Type        string    `json:"type"` // url, recording, directUpload or clip
	URL         string    `json:"url,omitempty"`
	GatewayURL  string    `json:"gatewayUrl,omitempty"`
	Encryption  *struct{} `json:"encryption,omitempty"` // present = the source is encrypted; the key is sealed in the task
	SourceID    string    `json:"sourceId,omitempty"`
	SessionID   string    `json:"sessionId,omitempty"`
	PlaybackID  string    `json:"playbackId,omitempty"`
	RequesterID string    `json:"requesterId,omitempty"`
	AssetID     string    `json:"assetId,omitempty"`
}

// The types of sources.
const (
	SourceURL          = "url"
	SourceRecording    = "recording"
	SourceDirectUpload = "directUpload"
	SourceClip         = "clip"
)

// AssetPhase is the state of an asset.
type AssetPhase string

// The phases of an asset.
const (
	AssetUploading  AssetPhase = "uploading"
	AssetWaiting    AssetPhase = "waiting"
	AssetProcessing AssetPhase = "processing"
	AssetReady      AssetPhase = "ready"
	AssetFailed     AssetPhase = "failed"
	AssetDeleting   AssetPhase = "deleting"
	AssetDeleted    AssetPhase = "deleted"
)

// AssetStatus is the state of an asset, and since when.
type AssetStatus struct {
	Phase        AssetPhase `json:"phase"`
	UpdatedAt    Millis     `json:"updatedAt"`
	Progress     *float64   `json:"progress,omitempty"`
	ErrorMessage string     `json:"errorMessage,omitempty"`
}

// Hash is a checksum of the source.
type Hash struct {
	Hash      string `json:"hash"`
	Algorithm string `json:"algorithm"`
}

// VideoSpec describes the media of the source.
type VideoSpec struct {
	Format   string  `json:"format,omitempty"`
	Duration float64 `json:"duration"` // seconds
	Bitrate  float64 `json:"bitrate,omitempty"`
	Tracks   []Track `json:"tracks,omitempty"`
}

// Track is one track of the source.
type Track struct {
	Type        string  `json:"type"` // video or audio
	Codec       string  `json:"codec"`
	StartTime   float64 `json:"startTime,omitempty"`
	Duration    float64 `json:"duration,omitempty"`
	Bitrate     float64 `json:"bitrate,omitempty"`
	Width       int     `json:"width,omitempty"`
	Height      int     `json:"height,omitempty"`
	PixelFormat string  `json:"pixelFormat,omitempty"`
	FPS         float64 `json:"fps,omitempty"`
	Channels    int     `json:"channels,omitempty"`
	SampleRate  int     `json:"sampleRate,omitempty"`
	BitDepth    int     `json:"bitDepth,omitempty"`
}

// File is one of the files that an asset is made of.
type File struct {
	Type    string `json:"type"` // catalyst_hls_manifest, static_transcoded_mp4, source_file or thumbnails_vtt
	Path    string `json:"path"`
	Size    int64  `json:"size,omitempty"`
	Width   int    `json:"width,omitempty"`
	Height  int    `json:"height,omitempty"`
	Bitrate int    `json:"bitrate,omitempty"`
}

// AssetStorage says where else an asset is stored.
type AssetStorage struct {
	IPFS   *IPFSStorage   `json:"ipfs,omitempty"`
	Status *StorageStatus `json:"status,omitempty"`
}

// IPFSStorage is an asset on IPFS.
type IPFSStorage struct {
	Spec        *IPFSSpec    `json:"spec,omitempty"`
	CID         string       `json:"cid,omitempty"`
	URL         string       `json:"url,omitempty"`
	GatewayURL  string       `json:"gatewayUrl,omitempty"`
	NFTMetadata *NFTMetadata `json:"nftMetadata,omitempty"`
	UpdatedAt   Millis       `json:"updatedAt,omitempty"`
}

// IPFSSpec holds what a caller requested of IPFS.
type IPFSSpec struct {
	NFTMetadataTemplate string          `json:"nftMetadataTemplate,omitempty"`
	NFTMetadata         json.RawMessage `json:"nftMetadata,omitempty"`
}

// NFTMetadata is the file that describes an asset to marketplaces.
type NFTMetadata struct {
	CID        string `json:"cid"`
	URL        string `json:"url,omitempty"`
	GatewayURL string `json:"gatewayUrl,omitempty"`
}

// StorageStatus is the state of the copy to other storage.
type StorageStatus struct {
	Phase        string       `json:"phase"` // waiting, processing, ready, failed or reverted
	Progress     *float64     `json:"progress,omitempty"`
	ErrorMessage string       `json:"errorMessage,omitempty"`
	Tasks        StorageTasks `json:"tasks"`
}

// StorageTasks are the ids of the tasks that copy.
type StorageTasks struct {
	Pending string `json:"pending,omitempty"`
	Last    string `json:"last,omitempty"`
	Failed  string `json:"failed,omitempty"`
}

// StorageBody is the member `storage` of a request: `{"ipfs": …}`, where the value is a boolean,
// null, or an object with a spec.
type StorageBody struct {
	IPFS *IPFSSpec // nil = no copy requested
}

// UnmarshalJSON reads the forms that the contract allows.
func (s *StorageBody) UnmarshalJSON(data []byte) error {
	var body struct {
		IPFS json.RawMessage `json:"ipfs"`
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return err
	}
	switch string(body.IPFS) {
	case "", "null", "false":
		return nil
	case "true":
		s.IPFS = &IPFSSpec{}
		return nil
	}
	var object struct {
		Spec Nullable[IPFSSpec] `json:"spec"`
	}
	if err := json.Unmarshal(body.IPFS, &object); err != nil {
		return err
	}
	switch {
	case !object.Spec.Set:
		s.IPFS = &IPFSSpec{}
	case object.Spec.Value != nil:
		s.IPFS = object.Spec.Value
	}
	return nil
}

// NewAsset is the body that creates an asset, by URL or for an upload.
type NewAsset struct {
	Name                  string          `json:"name"`
	URL                   string          `json:"url"` // "" = the bytes will be uploaded
	StaticMP4             bool            `json:"staticMp4"`
	PlaybackPolicy        *PlaybackPolicy `json:"playbackPolicy"`
	CreatorID             *CreatorID      `json:"creatorId"`
	Storage               *StorageBody    `json:"storage"`
	Encryption            *Encryption     `json:"encryption"`
	C2PA                  bool            `json:"c2pa"`
	Profiles              *[]Profile      `json:"profiles"`
	TargetSegmentSizeSecs float64         `json:"targetSegmentSizeSecs"`
	ObjectStoreID         string          `json:"objectStoreId"`
}

// Encryption is the key of an encrypted source, itself encrypted for weir.
type Encryption struct {
	EncryptedKey string `json:"encryptedKey"`
}

// Asset returns the asset and its task. The caller must check that the policy's webhook and the
// object store exist.
func (n NewAsset) Asset(caller *Caller, now time.Time) (Asset, Task, error) {
	if err := n.validate(); err != nil {
		return Asset{}, Task{}, err
	}
	id := NewID()
	a := Asset{
		ID: id, Name: n.Name, PlaybackID: NewPlaybackID(id), UserID: caller.UserID, ProjectID: caller.ProjectID,
		CreatedAt: At(now), CreatedByTokenName: caller.TokenName, CreatorID: n.CreatorID, PlaybackPolicy: n.PlaybackPolicy,
		StaticMP4: n.StaticMP4, Sign: n.C2PA, ObjectStoreID: n.ObjectStoreID,
		Source: AssetSource{Type: SourceDirectUpload}, Status: AssetStatus{Phase: AssetUploading, UpdatedAt: At(now)},
	}
	t := newTask(TaskUpload, caller, now)
	t.OutputAssetID = id
	t.Params.Upload = &UploadParams{C2PA: n.C2PA, TargetSegmentSizeSecs: segmentSeconds(n.TargetSegmentSizeSecs)}
	if n.Profiles != nil {
		a.Profiles, t.Params.Upload.Profiles = *n.Profiles, *n.Profiles
	}
	if n.URL != "" {
		a.Source = n.importSource(&t)
		a.Status.Phase = AssetWaiting
		t.Queue(now)
	}
	if n.Encryption != nil {
		a.Source.Encryption = &struct{}{}
		t.Secrets.EncryptedKey = n.Encryption.EncryptedKey
		t.Params.Upload.Encryption = &MaskedKey{Key: mask}
	}
	if n.Storage != nil && n.Storage.IPFS != nil {
		a.Storage = &AssetStorage{IPFS: &IPFSStorage{Spec: n.Storage.IPFS}}
	}
	return a, t, nil
}

// importSource returns the source of the asset and sets the URL of the task. Content of a trusted
// gateway is named by its own id. Only the task's secrets keep the credentials in the URL.
func (n NewAsset) importSource(t *Task) AssetSource {
	t.Params.Upload.URL = MaskURL(n.URL)
	if t.Params.Upload.URL != n.URL {
		t.Secrets.InputURL = n.URL
	}
	if name, ok := DefaultGateways().Resolve(n.URL); ok {
		return AssetSource{Type: SourceURL, URL: name, GatewayURL: t.Params.Upload.URL}
	}
	return AssetSource{Type: SourceURL, URL: t.Params.Upload.URL}
}

// SameImport reports whether a request asks for the same asset as an earlier one: the same source
// with the same options. The creator counts only when the request names one.
func SameImport(requested Asset, requestedTask Task, earlier Asset, earlierTask Task) bool {
	if requested.CreatorID != nil && (earlier.CreatorID == nil || *requested.CreatorID != *earlier.CreatorID) {
		return false
	}
	options := func(a Asset, t Task) []any {
		var spec *IPFSSpec
		if a.Storage != nil && a.Storage.IPFS != nil {
			spec = a.Storage.IPFS.Spec
		}
		return []any{a.Name, a.Source, a.PlaybackPolicy, a.Profiles, a.StaticMP4, a.ObjectStoreID, spec, t.Params.Upload, t.Secrets}
	}
	return sameJSON(options(requested, requestedTask), options(earlier, earlierTask))
}

func (n NewAsset) validate() error {
	if n.Profiles != nil {
		if len(*n.Profiles) == 0 {
			return Errorf(Refused, "assets must have at least one profile")
		}
		if err := CheckFileProfiles(*n.Profiles); err != nil {
			return err
		}
	}
	if n.Encryption != nil {
		if key, err := base64.StdEncoding.Strict().DecodeString(n.Encryption.EncryptedKey); err != nil || len(key) == 0 {
			if n.URL != "" {
				return Errorf(Invalid, `"encryptedKey" must be valid base64`)
			}
			return Errorf(Invalid, "encryptedKey must be valid base64")
		}
		if n.PlaybackPolicy == nil {
			return Errorf(Refused, "a playbackPolicy is required when using encryption")
		}
	}
	if n.ObjectStoreID != "" && n.PlaybackPolicy.Private() {
		return Errorf(Denied, "private assets cannot use custom object store")
	}
	if n.URL != "" {
		if err := checkSourceURL("url", n.URL); err != nil {
			return err
		}
	}
	return n.PlaybackPolicy.validate()
}

// AssetPatch is the body that changes an asset.
type AssetPatch struct {
	Name           *string                  `json:"name"`
	CreatorID      *CreatorID               `json:"creatorId"`
	PlaybackPolicy Nullable[PlaybackPolicy] `json:"playbackPolicy"`
	Storage        *StorageBody             `json:"storage"`
}

// Apply changes a as the patch says. Storage is left to the caller, because its change needs a
// task.
func (p AssetPatch) Apply(a *Asset, now time.Time) error {
	if a.Status.Phase != AssetReady {
		return Errorf(Invalid, "asset is not ready")
	}
	if p.PlaybackPolicy.Set {
		if err := p.PlaybackPolicy.Value.validate(); err != nil {
			return err
		}
		if p.PlaybackPolicy.Value.Private() != a.PlaybackPolicy.Private() {
			return Errorf(Invalid, "cannot update playback policy from private to public or vice versa")
		}
		a.PlaybackPolicy = p.PlaybackPolicy.Value
	}
	if p.Storage != nil && p.Storage.IPFS == nil && a.Storage != nil && a.Storage.IPFS != nil {
		return Errorf(Refused, "Cannot remove asset from IPFS")
	}
	set(&a.Name, p.Name)
	if p.CreatorID != nil {
		a.CreatorID = p.CreatorID
	}
	a.Status.UpdatedAt = At(now)
	return nil
}

// Delete marks the asset as deleted. Its bytes are deleted later; until then it can be restored.
func (a *Asset) Delete(now time.Time) {
	a.Deleted, a.DeletedAt = true, At(now)
	a.Status = AssetStatus{Phase: AssetDeleting, UpdatedAt: At(now)}
}

// Restore undoes a deletion.
func (a *Asset) Restore(now time.Time) error {
	if !a.Deleted {
		return Errorf(Refused, "asset is not deleted")
	}
	if a.Status.Phase != AssetDeleting {
		return Errorf(Refused, "asset is not in a restorable state")
	}
	a.Deleted, a.DeletedAt = false, 0
	a.Status = AssetStatus{Phase: AssetReady, UpdatedAt: At(now)}
	if a.VideoSpec == nil { // it was never ready
		a.Fail("the asset was deleted before it was ready: retry it", now)
	}
	return nil
}

// Purge marks the asset as deleted for good.
func (a *Asset) Purge(now time.Time) error {
	if a.Status.Phase != AssetDeleting {
		return Errorf(Refused, "asset is not being deleted")
	}
	a.PlaybackURL, a.DownloadURL, a.Files, a.Stored = "", "", nil, 0
	a.Status = AssetStatus{Phase: AssetDeleted, UpdatedAt: At(now)}
	return nil
}

// Process sets the progress of an asset that is being made. The progress never falls. An asset
// that is ready, failed or deleted stays as it is.
func (a *Asset) Process(progress float64, now time.Time) {
	unfinished := []AssetPhase{AssetUploading, AssetWaiting, AssetProcessing}
	if a.Deleted || !slices.Contains(unfinished, a.Status.Phase) {
		return
	}
	if a.Status.Phase == AssetProcessing && a.Status.Progress != nil {
		progress = max(progress, *a.Status.Progress)
	}
	a.Status = AssetStatus{Phase: AssetProcessing, UpdatedAt: At(now), Progress: new(progress)}
}

// Ready marks the asset as complete.
func (a *Asset) Ready(now time.Time) {
	if !a.Deleted {
		a.Status = AssetStatus{Phase: AssetReady, UpdatedAt: At(now)}
	}
}

// Requeue makes an asset that failed wait for its task again.
func (a *Asset) Requeue(now time.Time) {
	a.Status = AssetStatus{Phase: AssetWaiting, UpdatedAt: At(now)}
}

// WantsOnIPFS reports whether spec asks for another copy on IPFS than the one that exists or is
// being made.
func (a *Asset) WantsOnIPFS(spec *IPFSSpec) bool {
	if spec == nil {
		return false
	}
	if a.Storage == nil || a.Storage.IPFS == nil || a.Storage.IPFS.Spec == nil || a.Storage.Status != nil && a.Storage.Status.Phase == "failed" {
		return true
	}
	return !sameJSON(spec, a.Storage.IPFS.Spec)
}

// StoreOnIPFS records that a task copies the asset to IPFS.
func (a *Asset) StoreOnIPFS(spec IPFSSpec, taskID string, now time.Time) {
	storage := AssetStorage{IPFS: &IPFSStorage{}, Status: &StorageStatus{Phase: "waiting", Tasks: StorageTasks{Pending: taskID}}}
	if a.Storage != nil && a.Storage.IPFS != nil {
		*storage.IPFS = *a.Storage.IPFS
	}
	if a.Storage != nil && a.Storage.Status != nil {
		storage.Status.Tasks.Last = a.Storage.Status.Tasks.Last
	}
	storage.IPFS.Spec = &spec
	a.Storage = &storage
	a.Status.UpdatedAt = At(now)
}

// FailStorage records that the task which should have copied the asset to IPFS failed. earlier is
// the spec of the copy that exists; nil = there is none.
func (a *Asset) FailStorage(taskID, message string, earlier *IPFSSpec, now time.Time) {
	if a.Storage == nil || a.Storage.Status == nil || a.Storage.Status.Tasks.Pending != taskID {
		return // a newer task replaced it
	}
	storage := *a.Storage
	storage.Status = &StorageStatus{
		Phase: "failed", ErrorMessage: message,
		Tasks: StorageTasks{Last: a.Storage.Status.Tasks.Last, Failed: taskID},
	}
	if earlier != nil && storage.IPFS != nil {
		ipfs := *storage.IPFS
		ipfs.Spec = earlier
		storage.IPFS, storage.Status.Phase = &ipfs, "reverted"
	}
	a.Storage = &storage
	a.Status.UpdatedAt = At(now)
}

// Fail marks the asset as failed.
func (a *Asset) Fail(message string, now time.Time) {
	a.Status = AssetStatus{Phase: AssetFailed, UpdatedAt: At(now), ErrorMessage: message}
}

// WithBase returns the asset with whole URLs in the place of stored addresses.
func (a Asset) WithBase(base Base) Asset {
	addresses := []*string{&a.PlaybackURL, &a.DownloadURL}
	if a.Storage != nil && a.Storage.IPFS != nil {
		storage, ipfs := *a.Storage, *a.Storage.IPFS
		storage.IPFS, a.Storage = &ipfs, &storage
		addresses = append(addresses, &ipfs.GatewayURL)
		if ipfs.NFTMetadata != nil {
			metadata := *ipfs.NFTMetadata
			ipfs.NFTMetadata = &metadata
			addresses = append(addresses, &metadata.GatewayURL)
		}
	}
	for _, address := range addresses {
		*address = base.Of(*address)
	}
	return a
}

// WithoutTracks returns the asset without the details of its tracks.
func (a Asset) WithoutTracks() Asset {
	if a.VideoSpec != nil && a.VideoSpec.Tracks != nil {
		spec := *a.VideoSpec
		spec.Tracks = nil
		a.VideoSpec = &spec
	}
	return a
}
