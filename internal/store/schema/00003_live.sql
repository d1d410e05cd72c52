-- Which node carries which stream.

-- +goose Up

-- live: a session must end, or was taken over by another node.
INSERT INTO counter (name, value) VALUES ('live', 0);

-- One row per stream that was ever on air. It stays between sessions, because its
-- epoch and its numbers must go on.
CREATE TABLE live (
	stream_id            TEXT PRIMARY KEY,
	session_id           TEXT NOT NULL,    -- '' = none is open
	node                 TEXT NOT NULL,
	epoch                BIGINT NOT NULL,  -- grows with every owner
	connected            BOOLEAN NOT NULL, -- an encoder sends
	timeout_ms           BIGINT NOT NULL,  -- how long the session waits for its encoder
	seen_at              BIGINT NOT NULL,
	expires_at           BIGINT NOT NULL,  -- from then on the node is taken for dead
	closes_at            BIGINT NOT NULL,  -- from then on nobody goes on with the session
	ending               TEXT NOT NULL,    -- why it must end; '' = it need not
	sequence             BIGINT NOT NULL,  -- the first numbers of the session
	discontinuities      BIGINT NOT NULL,
	next_sequence        BIGINT NOT NULL,  -- those that nobody has seen yet
	next_discontinuities BIGINT NOT NULL
);
CREATE INDEX live_open ON live (node) WHERE session_id <> '';

-- +goose Down
DROP TABLE live;
DELETE FROM counter WHERE name = 'live';
