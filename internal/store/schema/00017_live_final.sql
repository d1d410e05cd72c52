-- Whether the numbers of a stream on air are exact.

-- +goose Up
ALTER TABLE live ADD COLUMN final BOOLEAN NOT NULL DEFAULT FALSE; -- nothing was shown since the last beat

-- +goose Down
ALTER TABLE live DROP COLUMN final;
