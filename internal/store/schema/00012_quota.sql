-- How many bytes of storage the assets of an account take.

-- +goose Up
ALTER TABLE asset ADD COLUMN stored BIGINT NOT NULL DEFAULT 0; -- bytes in weir's storage, until they are purged
CREATE INDEX asset_stored ON asset (user_id, stored);

-- +goose Down
DROP INDEX asset_stored;
ALTER TABLE asset DROP COLUMN stored;
