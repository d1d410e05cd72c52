-- Chunks that one encoder makes, one after the other.

-- +goose Up
ALTER TABLE piece ADD COLUMN continues BOOLEAN NOT NULL DEFAULT FALSE; -- the chunk before it
ALTER TABLE piece DROP COLUMN stats;

-- +goose Down
ALTER TABLE piece ADD COLUMN stats TEXT NOT NULL DEFAULT '';
ALTER TABLE piece DROP COLUMN continues;
