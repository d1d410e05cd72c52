package weir

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

// An IPFSUpload is a directory on IPFS: the outputs of a task, or the copy of an asset. The space, a
// did:key, owns it together with the account.
type IPFSUpload struct {
	ID        string
	UserID    string
	ProjectID string
	TaskID    string
	AssetID   string // set for the copy of an asset, which is readable for those who may play the asset
	Space     string
	Root      string // CID of the directory; empty until the upload is complete
	Remote    string // "local", "kubo" or "upload"
	Size      int64  // of all CAR files
	Shards    int
	CreatedAt Millis
	UpdatedAt Millis
}
