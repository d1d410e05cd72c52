-- Assets have secrets: where tracks that are added to them are to be fetched from.

-- +goose Up
ALTER TABLE asset ADD COLUMN sealed BYTEA NOT NULL DEFAULT ''; -- '' = none

-- +goose Down
ALTER TABLE asset DROP COLUMN sealed;
