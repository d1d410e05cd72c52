-- What growing recordings count in the quota of storage.

-- +goose Up
ALTER TABLE session ADD COLUMN recorded_bytes BIGINT NOT NULL DEFAULT 0; -- until the recording is an asset
CREATE INDEX session_recorded ON session (user_id, recorded_bytes) WHERE recorded_bytes > 0;

-- +goose Down
DROP INDEX session_recorded;
ALTER TABLE session DROP COLUMN recorded_bytes;
