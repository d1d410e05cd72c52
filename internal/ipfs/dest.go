package ipfs

import "weir/internal/blob"

// DestOptions configure a destination on IPFS.
type DestOptions struct {
	Staging  blob.Store          // where objects are kept until Seal
	Prefix   string              // folder of the destination in Staging
	Scratch  string              // folder on disk for one shard
	Remote   Remote              // what takes the shards
	Progress func(share float64) // of Seal, from 0 to 1; may be nil
}

// NewDest returns a destination whose Seal makes one directory on IPFS of all objects and returns
// ipfs://<cid>.
func NewDest(o DestOptions) blob.Dest { panic("not written yet") }
