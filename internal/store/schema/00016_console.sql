-- What administrators see of nodes and of the queue, and the storage of accounts over time.

-- +goose Up
ALTER TABLE node ADD COLUMN report TEXT NOT NULL DEFAULT '{}'; -- JSON: what the node says about itself

-- The bytes that an account stored on a day, as last measured.
CREATE TABLE storage_day (
	user_id TEXT NOT NULL,
	day     BIGINT NOT NULL, -- its start
	bytes   BIGINT NOT NULL,
	PRIMARY KEY (user_id, day)
);
CREATE INDEX storage_day_day ON storage_day (day);

-- +goose Down
DROP TABLE storage_day;
ALTER TABLE node DROP COLUMN report;
