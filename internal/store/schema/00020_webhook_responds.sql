-- Webhooks whose receivers respond have places of their own when events are sent.

-- +goose Up
ALTER TABLE webhook ADD COLUMN responds BOOLEAN NOT NULL DEFAULT FALSE; -- to the last delivery

-- +goose Down
ALTER TABLE webhook DROP COLUMN responds;
