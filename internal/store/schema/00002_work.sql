-- What tasks need while they are done: how far each is, and the pieces that its
-- work is cut into.

-- +goose Up

-- task: a task waits or has ended. encode: not watched; whoever gives out pieces
-- locks it, so that two nodes do not do so at once.
INSERT INTO counter (name, value) VALUES ('task', 0), ('encode', 0);

ALTER TABLE node ADD COLUMN slots BIGINT NOT NULL DEFAULT 0;  -- pieces it does at once
ALTER TABLE task ADD COLUMN due_at BIGINT NOT NULL DEFAULT 0; -- a task that waits is not admitted before

CREATE TABLE task_work (
	task_id        TEXT PRIMARY KEY,
	run            BIGINT NOT NULL,           -- counts the times that it began from nothing
	ended          BOOLEAN NOT NULL,          -- the task has ended, its bytes are going
	open           BOOLEAN NOT NULL,          -- its pieces may be done
	node           TEXT NOT NULL,             -- where its spool is
	source         TEXT NOT NULL,             -- JSON; '' = not known yet
	plan           TEXT NOT NULL,
	publisher      TEXT NOT NULL,
	tied           BOOLEAN NOT NULL,          -- its pieces are done by the job that imported it
	stream         BOOLEAN NOT NULL,          -- pieces are published as they are done, not all at the end
	pieces         BIGINT NOT NULL,
	done           BIGINT NOT NULL,           -- of the pieces
	ahead          BIGINT NOT NULL,           -- so many of the first chunks are done
	publishing     BOOLEAN NOT NULL,          -- a job publishes, or will
	publish_job    BIGINT NOT NULL,           -- the one that does so; 0 = none
	imported       DOUBLE PRECISION NOT NULL, -- shares, 0 to 1
	published      DOUBLE PRECISION NOT NULL,
	started_at     BIGINT NOT NULL,
	encoding_at    BIGINT NOT NULL,           -- since when, and with how much of it done before
	encoded_before DOUBLE PRECISION NOT NULL,
	told_at        BIGINT NOT NULL,           -- the last event of its progress, and what that said
	told_progress  DOUBLE PRECISION NOT NULL
);

CREATE TABLE piece (
	task_id     TEXT NOT NULL,
	name        TEXT NOT NULL,
	seq         BIGINT NOT NULL,  -- its place in the order of the work
	number      BIGINT NOT NULL,  -- of a chunk; -1 = it is none
	needs       BIGINT NOT NULL,  -- so many of the first chunks must be done before
	urgent      BOOLEAN NOT NULL,
	weight      DOUBLE PRECISION NOT NULL,
	state       TEXT NOT NULL,    -- waiting, queued, running or done
	job         BIGINT NOT NULL,  -- that does it, or did
	started     BIGINT NOT NULL,  -- how often it was begun
	finished    BIGINT NOT NULL,  -- how often it was done
	progress    DOUBLE PRECISION NOT NULL,
	node        TEXT NOT NULL,
	started_at  BIGINT NOT NULL,
	finished_at BIGINT NOT NULL,
	result      TEXT NOT NULL,    -- JSON
	stats       TEXT NOT NULL,    -- JSON: the little of it that other pieces need to know
	PRIMARY KEY (task_id, name)
);
CREATE INDEX piece_order ON piece (task_id, seq);
CREATE INDEX piece_state ON piece (state, task_id);
CREATE INDEX asset_phase ON asset (phase, updated_at);

-- +goose Down
DROP INDEX asset_phase;
DROP TABLE piece;
DROP TABLE task_work;
ALTER TABLE task DROP COLUMN due_at;
ALTER TABLE node DROP COLUMN slots;
DELETE FROM counter WHERE name IN ('task', 'encode');
