-- Streams that weir fetches from their source.

-- +goose Up

-- pull: a pull is wanted, is not any more, plays or has failed.
INSERT INTO counter (name, value) VALUES ('pull', 0);

-- Its row is locked by whoever makes a stream unless there is one with the same source.
INSERT INTO counter (name, value) VALUES ('pull-source', 0);

-- One row per stream that was ever pulled. Where from stands in the stream, sealed.
CREATE TABLE pull (
	stream_id  TEXT PRIMARY KEY,
	wish       BIGINT NOT NULL,  -- grows with every start
	wanted     BOOLEAN NOT NULL,
	plays      BOOLEAN NOT NULL, -- media of this wish was on air
	failures   BIGINT NOT NULL,  -- in a row
	issue      TEXT NOT NULL,    -- why it failed last, for people
	position   BIGINT NOT NULL,  -- how far the source was read, as its reader counts
	node       TEXT NOT NULL,    -- who has it; '' = nobody
	boot       TEXT NOT NULL,    -- and in which of its lives
	claim      BIGINT NOT NULL,  -- grows with everybody who has it
	expires_at BIGINT NOT NULL,  -- from then on the node is taken for dead
	due_at     BIGINT NOT NULL   -- until then nobody takes it
);
CREATE INDEX pull_wanted ON pull (due_at) WHERE wanted;

-- +goose Down
DROP TABLE pull;
DELETE FROM counter WHERE name IN ('pull', 'pull-source');
