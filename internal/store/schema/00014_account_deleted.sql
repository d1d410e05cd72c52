-- Accounts that are deleted, but can be restored for a while.

-- +goose Up
ALTER TABLE account ADD COLUMN deleted BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE account ADD COLUMN deleted_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE account ADD COLUMN purging BOOLEAN NOT NULL DEFAULT FALSE; -- its content is being removed
CREATE INDEX account_deleted ON account (deleted_at) WHERE deleted;

-- +goose Down
DROP INDEX account_deleted;
ALTER TABLE account DROP COLUMN purging;
ALTER TABLE account DROP COLUMN deleted_at;
ALTER TABLE account DROP COLUMN deleted;
