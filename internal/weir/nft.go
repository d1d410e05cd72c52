package weir

import (
	"encoding/json"
	"time"
)

// NFTMetadataFile returns the file that describes an asset to marketplaces, whose file on IPFS has the
// given CID. Members of the spec replace those of its template; null removes one.
func NFTMetadataFile(a Asset, spec IPFSSpec, cid string, base Base) ([]byte, error) {
	metadata := map[string]any{
		"name":          a.Name,
		"description":   "Video: " + a.Name,
		"image":         base.URL + "/hls/" + a.PlaybackID + "/poster.jpg",
		"animation_url": IPFSScheme + cid,
	}
	if spec.NFTMetadataTemplate == "player" {
		player := base.URL + "/play/" + a.PlaybackID
		metadata["animation_url"], metadata["external_url"] = player, player
		metadata["properties"] = map[string]any{"video": IPFSScheme + cid, "playbackId": a.PlaybackID}
	}
	if len(spec.NFTMetadata) > 0 {
		var own map[string]any
		if err := json.Unmarshal(spec.NFTMetadata, &own); err != nil {
			return nil, Wrap(Invalid, err, "nftMetadata: is not an object")
		}
		merge(metadata, own)
	}
	return json.Marshal(metadata)
}

// merge puts the members of changes into object, and those of objects in it into objects there. null
// removes a member.
func merge(object, changes map[string]any) {
	for name, value := range changes {
		inner, isObject := value.(map[string]any)
		had, wasObject := object[name].(map[string]any)
		switch {
		case value == nil:
			delete(object, name)
		case isObject && wasObject:
			merge(had, inner)
		case isObject: // merged, so that it has no null either
			made := map[string]any{}
			merge(made, inner)
			object[name] = made
		default:
			object[name] = value
		}
	}
}

// IPFSCopy is the copy of an asset on IPFS.
type IPFSCopy struct {
	CID, MetadataCID string
	Served           bool // this service has a gateway to it
}

// gatewayURL returns the address of a CID at this service.
func (c IPFSCopy) gatewayURL(base Base, cid string) string {
	if !c.Served {
		return ""
	}
	return base.GatewayURL(cid)
}

// Output returns the copy as the output of a task.
func (c IPFSCopy) Output(base Base) *IPFSOutput {
	return &IPFSOutput{
		VideoFileCID: c.CID, VideoFileURL: IPFSScheme + c.CID, VideoFileGatewayURL: c.gatewayURL(base, c.CID),
		NFTMetadataCID: c.MetadataCID, NFTMetadataURL: IPFSScheme + c.MetadataCID, NFTMetadataGatewayURL: c.gatewayURL(base, c.MetadataCID),
	}
}

// StoredOnIPFS records the copy that a task made of the asset.
func (a *Asset) StoredOnIPFS(c IPFSCopy, spec IPFSSpec, taskID string, now time.Time) {
	a.Storage = &AssetStorage{
		IPFS: &IPFSStorage{
			Spec: &spec, CID: c.CID, URL: IPFSScheme + c.CID, GatewayURL: c.gatewayURL(Base{}, c.CID), UpdatedAt: At(now),
			NFTMetadata: &NFTMetadata{CID: c.MetadataCID, URL: IPFSScheme + c.MetadataCID, GatewayURL: c.gatewayURL(Base{}, c.MetadataCID)},
		},
		Status: &StorageStatus{Phase: "ready", Tasks: StorageTasks{Last: taskID}},
	}
	a.Status.UpdatedAt = At(now)
}

// ProcessStorage records that a task copies the asset now.
func (a *Asset) ProcessStorage(taskID string, progress float64) {
	if a.Storage == nil || a.Storage.Status == nil || a.Storage.Status.Tasks.Pending != taskID {
		return // a newer task replaced it
	}
	storage, status := *a.Storage, *a.Storage.Status
	status.Phase, status.Progress = "processing", new(progress)
	storage.Status = &status
	a.Storage = &storage
}

// RemovedFromIPFS records that an upload, which was a copy of the asset or its metadata, was removed.
// It reports whether anything changed.
func (a *Asset) RemovedFromIPFS(cid string, now time.Time) bool {
	if a.Storage == nil || a.Storage.IPFS == nil {
		return false
	}
	ipfs := *a.Storage.IPFS
	switch {
	case ipfs.CID == cid:
		a.Storage = nil
	case ipfs.NFTMetadata != nil && ipfs.NFTMetadata.CID == cid:
		ipfs.NFTMetadata = nil
		a.Storage = &AssetStorage{IPFS: &ipfs, Status: a.Storage.Status}
	default:
		return false
	}
	a.Status.UpdatedAt = At(now)
	return true
}
