package store

import (
	"context"
	"strings"
	"time"

	"weir/internal/weir"
)

type uploadHidden struct {
	Run      int    `json:"run,omitempty"`
	Part     string `json:"part,omitempty"`
	Complete bool   `json:"complete,omitempty"`
	Deleted  bool   `json:"deleted,omitempty"`
}

var ipfsUploads = table[weir.IPFSUpload]{
	name:    "ipfs_upload",
	deleted: true,
	project: true,
	order:   "createdAt-true",
	columns: func(_ *queries, u *weir.IPFSUpload) []column {
		return []column{
			{"id", u.ID},
			{"user_id", u.UserID},
			{"project_id", u.ProjectID},
			{"deleted", u.Deleted},
			{"created_at", int64(u.CreatedAt)},
			{"updated_at", int64(u.UpdatedAt)},
			{"task_id", u.TaskID},
			{"run", u.Run},
			{"part", u.Part},
			{"asset_id", u.AssetID},
			{"space", u.Space},
			{"root", u.Root},
			{"remote", u.Remote},
			{"size", u.Size},
			{"complete", u.Complete},
		}
	},
	fields: map[string]field{
		"id": {"id", textField}, "createdAt": {"created_at", numberField}, "updatedAt": {"updated_at", numberField},
		"userId": {"user_id", textField}, "user.email": {"user_id", emailField}, "projectId": {"project_id", textField},
		"taskId": {"task_id", textField}, "assetId": {"asset_id", textField}, "space": {"space", textField}, "cid": {"root", textField},
		"remote": {"remote", textField}, "size": {"size", numberField}, "complete": {"complete", boolField},
	},
	hidden: func(u *weir.IPFSUpload) any { return &uploadHidden{u.Run, u.Part, u.Complete, u.Deleted} },
	unhide: func(u *weir.IPFSUpload, hidden any) {
		h := hidden.(*uploadHidden)
		u.Run, u.Part, u.Complete, u.Deleted = h.Run, h.Part, h.Complete, h.Deleted
	},
}

// IPFSUpload returns the upload with the id, also one that is not complete or is being removed.
func (q *queries) IPFSUpload(ctx context.Context, id string) (weir.IPFSUpload, error) {
	return ipfsUploads.get(ctx, q, id)
}

// IPFSUploads returns a page of uploads, also of those that are not complete.
func (q *queries) IPFSUploads(ctx context.Context, query Query) (Page[weir.IPFSUpload], error) {
	return ipfsUploads.list(ctx, q, query)
}

// CompleteIPFSUploads returns a page of uploads that are complete.
func (q *queries) CompleteIPFSUploads(ctx context.Context, query Query) (Page[weir.IPFSUpload], error) {
	query.Where = append(query.Where, Filter{ID: "complete", Value: true})
	return ipfsUploads.list(ctx, q, query)
}

// IPFSUploadsOfTask returns the uploads of the runs of a task up to the given one that are not
// complete.
func (q *queries) IPFSUploadsOfTask(ctx context.Context, taskID string, run int) ([]weir.IPFSUpload, error) {
	return ipfsUploads.where(ctx, q, "task_id = $1 AND run <= $2 AND NOT complete ORDER BY id", taskID, run)
}

// IPFSUploadsOfAsset returns the copies of an asset, also those that are not complete.
func (q *queries) IPFSUploadsOfAsset(ctx context.Context, assetID string) ([]weir.IPFSUpload, error) {
	return ipfsUploads.where(ctx, q, "asset_id = $1 ORDER BY id", assetID)
}

// Pinned reports whether an upload at an IPFS node other than the given one has the same root.
func (q *queries) Pinned(ctx context.Context, root, exceptID string) (bool, error) {
	n, err := one(ctx, q.conn, scanInt, "SELECT count(*) FROM ipfs_upload WHERE root = $1 AND id <> $2 AND remote = $3 AND complete AND NOT deleted", root, exceptID, weir.IPFSKubo)
	return n > 0, err
}

// OpenIPFSUpload returns the upload of a run of a task, and creates it the first time.
func (tx *Tx) OpenIPFSUpload(ctx context.Context, u weir.IPFSUpload) (weir.IPFSUpload, error) {
	had, ok, err := found(first(ipfsUploads.where(ctx, &tx.queries, "task_id = $1 AND run = $2 AND part = $3", u.TaskID, u.Run, u.Part)))
	if err != nil || ok {
		return had, err
	}
	return u, ipfsUploads.insert(ctx, tx, &u)
}

// UpdateIPFSUpload changes an upload.
func (tx *Tx) UpdateIPFSUpload(ctx context.Context, id string, change func(*weir.IPFSUpload) error) (weir.IPFSUpload, error) {
	return ipfsUploads.update(ctx, tx, id, change)
}

// ReserveIPFSUpload counts the bytes of an upload to weir's own storage that are about to be stored,
// if its account may have them.
func (tx *Tx) ReserveIPFSUpload(ctx context.Context, id string, bytes int64) error {
	u, err := tx.IPFSUpload(ctx, id)
	if err != nil || u.Size >= bytes {
		return err
	}
	if err := tx.CheckQuota(ctx, u.UserID, weir.Storage, bytes-u.Size); err != nil {
		return err
	}
	_, err = tx.UpdateIPFSUpload(ctx, id, func(u *weir.IPFSUpload) error {
		u.Size = bytes
		return nil
	})
	return err
}

// CompleteIPFSUpload makes an upload known under its CID. It replaces an earlier one with the same
// content in the same space.
func (tx *Tx) CompleteIPFSUpload(ctx context.Context, id, root string, now time.Time) (weir.IPFSUpload, error) {
	u, err := ipfsUploads.lock(ctx, tx, id)
	if err != nil {
		return u, err
	}
	same, err := ipfsUploads.where(ctx, &tx.queries, `root = $1 AND space = $2 AND user_id = $3 AND project_id = $4 AND asset_id = $5
		AND id <> $6 AND complete AND NOT deleted`+tx.store.engine.forUpdate(), root, u.Space, u.UserID, u.ProjectID, u.AssetID, id)
	if err != nil {
		return u, err
	}
	for _, earlier := range same {
		if _, err := tx.DeleteIPFSUpload(ctx, earlier.ID, func(*weir.IPFSUpload) error { return nil }); err != nil {
			return u, err
		}
	}
	u.Finish(root, now)
	return u, ipfsUploads.save(ctx, tx, id, &u)
}

// DeleteIPFSUpload hides an upload, if check allows it; a job removes it.
func (tx *Tx) DeleteIPFSUpload(ctx context.Context, id string, check func(*weir.IPFSUpload) error) (weir.IPFSUpload, error) {
	u, err := tx.UpdateIPFSUpload(ctx, id, func(u *weir.IPFSUpload) error {
		if err := check(u); err != nil {
			return err
		}
		u.Deleted = true
		return nil
	})
	if err != nil {
		return u, err
	}
	return u, tx.Enqueue(ctx, JobPurge, purgeUpload+id)
}

// ForgetIPFSUpload deletes the rows of an upload whose files are deleted. The upload is the last, so
// that it can be repeated.
func (s *Store) ForgetIPFSUpload(ctx context.Context, id string) error {
	for {
		n, err := s.conn.exec(ctx, `DELETE FROM ipfs_block WHERE ipfs_upload_id = $1
			AND hash IN (SELECT hash FROM ipfs_block WHERE ipfs_upload_id = $1 LIMIT 1000)`, id)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	_, err := s.conn.exec(ctx, "DELETE FROM ipfs_upload WHERE id = $1", id)
	return err
}

// blocksAtOnce bounds how many rows one statement writes.
const blocksAtOnce = 100

// AddIPFSBlocks records where blocks of an upload are, which may be at another place than before: a
// shard that was not recorded in time is made again, maybe of other files.
func (s *Store) AddIPFSBlocks(ctx context.Context, upload string, blocks []weir.IPFSBlock) error {
	return s.Tx(ctx, func(tx *Tx) error {
		for len(blocks) > 0 {
			n := min(len(blocks), blocksAtOnce)
			b := &builder{}
			rows := make([]string, n)
			for i, block := range blocks[:n] {
				rows[i] = b.bind("(%s, %s, %s, %s, %s)", block.Hash, upload, block.Shard, block.Offset, block.Size)
			}
			blocks = blocks[n:]
			if _, err := tx.conn.exec(ctx, "INSERT INTO ipfs_block (hash, ipfs_upload_id, shard, at, size) VALUES "+strings.Join(rows, ", ")+
				" ON CONFLICT (hash, ipfs_upload_id) DO UPDATE SET shard = excluded.shard, at = excluded.at, size = excluded.size", b.args...); err != nil {
				return err
			}
		}
		return nil
	})
}

// placesAtOnce bounds how many places of a block are read: a small one can be in every upload.
const placesAtOnce = 1000

// IPFSBlocks returns places of a block in complete uploads, by its multihash.
func (s *Store) IPFSBlocks(ctx context.Context, hash []byte) ([]weir.IPFSBlockPlace, error) {
	return many(ctx, s.conn, func(r rows) (p weir.IPFSBlockPlace, err error) {
		p.Hash = hash
		return p, r.Scan(&p.Upload, &p.Shard, &p.Offset, &p.Size)
	}, `SELECT b.ipfs_upload_id, b.shard, b.at, b.size FROM ipfs_block b JOIN ipfs_upload u ON u.id = b.ipfs_upload_id
		WHERE b.hash = $1 AND u.complete AND NOT u.deleted AND u.user_id NOT IN (SELECT id FROM account WHERE deleted)
		ORDER BY (u.asset_id <> ''), u.created_at DESC, u.id LIMIT $2`, hash, placesAtOnce)
}

// ForgetCopy records on an asset that the upload which was its copy is removed.
func (tx *Tx) ForgetCopy(ctx context.Context, u weir.IPFSUpload, events *weir.EventBatch) error {
	if u.AssetID == "" {
		return nil
	}
	changed := false
	a, err := tx.UpdateAsset(ctx, u.AssetID, func(a *weir.Asset) error {
		changed = a.RemovedFromIPFS(u.Root, events.Now)
		return nil
	})
	if err == nil && changed && !a.Deleted {
		events.Asset(weir.AssetUpdated, a)
	}
	return ignoreNotFound(err)
}

// RemoveFromSpace hides the uploads of a space with this root; jobs remove them.
func (tx *Tx) RemoveFromSpace(ctx context.Context, space, root string, events *weir.EventBatch) error {
	all, err := ipfsUploads.where(ctx, &tx.queries, "space = $1 AND root = $2 AND complete AND NOT deleted ORDER BY id", space, root)
	if err == nil && len(all) == 0 {
		return weir.ErrNotFound()
	}
	for _, u := range all {
		if err == nil {
			_, err = tx.DeleteIPFSUpload(ctx, u.ID, func(*weir.IPFSUpload) error { return nil })
		}
		if err == nil {
			err = tx.ForgetCopy(ctx, u, events)
		}
	}
	if err != nil {
		return err
	}
	return tx.EmitBatch(ctx, events)
}
