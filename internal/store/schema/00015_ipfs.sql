-- Uploads to IPFS, and where the blocks of those are that are in weir's own storage.

-- +goose Up
CREATE TABLE ipfs_upload (
	id         TEXT PRIMARY KEY,
	user_id    TEXT NOT NULL,
	project_id TEXT NOT NULL,
	deleted    BOOLEAN NOT NULL, -- a job removes it
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	task_id    TEXT NOT NULL,
	run        BIGINT NOT NULL, -- of the task
	part       TEXT NOT NULL,   -- of the task's result
	asset_id   TEXT NOT NULL,
	space      TEXT NOT NULL,
	root       TEXT NOT NULL,
	remote     TEXT NOT NULL,
	size       BIGINT NOT NULL,
	complete   BOOLEAN NOT NULL,
	doc        TEXT NOT NULL,
	hidden     TEXT NOT NULL
);
CREATE INDEX ipfs_upload_user ON ipfs_upload (user_id, project_id, deleted, created_at, id);
CREATE INDEX ipfs_upload_space ON ipfs_upload (space, created_at, id);
CREATE INDEX ipfs_upload_asset ON ipfs_upload (asset_id) WHERE asset_id <> '';
CREATE UNIQUE INDEX ipfs_upload_task ON ipfs_upload (task_id, run, part);
CREATE UNIQUE INDEX ipfs_upload_root ON ipfs_upload (root, space, user_id, project_id, asset_id) WHERE complete AND NOT deleted;

CREATE TABLE ipfs_block (
	hash           BYTEA NOT NULL, -- multihash
	ipfs_upload_id TEXT NOT NULL,
	shard          BIGINT NOT NULL,
	at             BIGINT NOT NULL, -- offset of the data in the shard
	size           BIGINT NOT NULL,
	PRIMARY KEY (hash, ipfs_upload_id)
);
CREATE INDEX ipfs_block_upload ON ipfs_block (ipfs_upload_id);

-- +goose Down
DROP TABLE ipfs_block;
DROP TABLE ipfs_upload;
