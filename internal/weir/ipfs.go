package weir

import "time"

// An IPFSBlock is a block of an upload, inside one of its CAR files.
type IPFSBlock struct {
	Hash   []byte // multihash
	Shard  int    // number of the CAR file
	Offset int64  // of the data of the block in that file
	Size   int64
}

// An IPFSBlockPlace says where a block is stored.
type IPFSBlockPlace struct {
	Upload string // id of the upload
	IPFSBlock
}

// Where uploads to IPFS go.
const (
	IPFSLocal  = "local"  // weir's own storage
	IPFSKubo   = "kubo"   // an IPFS node
	IPFSUCAN   = "upload" // a UCAN upload service
	IPFSScheme = "ipfs://"
)

// An IPFSUpload is a directory or a file on IPFS: the outputs of a task, or the copy of an asset. The
// space, a did:key, owns it together with the account.
type IPFSUpload struct {
	ID        string `json:"id"`
	UserID    string `json:"userId"`
	ProjectID string `json:"projectId"`
	TaskID    string `json:"taskId"`
	AssetID   string `json:"assetId,omitempty"` // set for the copy of an asset, which is readable for those who may play the asset
	Space     string `json:"space"`
	Root      string `json:"cid"` // empty until the upload is complete
	Remote    string `json:"remote"`
	Size      int64  `json:"size"` // of all CAR files
	Shards    int    `json:"shards"`
	CreatedAt Millis `json:"createdAt"`
	UpdatedAt Millis `json:"updatedAt"`

	// These fields are stored and not shown.
	Run      int    `json:"-"` // of the task
	Part     string `json:"-"` // of the result of the task, which may have several uploads
	Complete bool   `json:"-"`
	Deleted  bool   `json:"-"` // a job removes it
}

// Finish makes the upload known under its CID.
func (u *IPFSUpload) Finish(root string, now time.Time) {
	u.Root, u.Complete, u.UpdatedAt = root, true, At(now)
}
