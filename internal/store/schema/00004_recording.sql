-- Recordings of sessions.

-- +goose Up

-- Nothing was recorded of a session although it was to be.
ALTER TABLE session ADD COLUMN unrecorded BOOLEAN NOT NULL DEFAULT FALSE;

-- +goose Down
ALTER TABLE session DROP COLUMN unrecorded;
