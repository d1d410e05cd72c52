package ipfs

import (
	"log/slog"

	"weir/internal/blob"
)

// Folder returns the folder of a store with the shards of an upload.
func Folder(upload string) string { return "ipfs/" + upload }

// NewLocal returns weir's own storage as a Remote: shards are objects in Folder(upload), and their
// blocks are entered into the index. To remove an upload, delete its folder and its rows.
func NewLocal(s blob.Store, index Index, upload string) Remote { panic("not written yet") }

// Blocks reads the blocks of local uploads.
type Blocks struct {
	Log *slog.Logger // of damaged blocks; nil = no log

	store blob.Store
	index Index
}

// NewBlocks returns a reader of the blocks that NewLocal stored.
func NewBlocks(s blob.Store, index Index) *Blocks { return &Blocks{store: s, index: index} }
