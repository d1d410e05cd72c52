-- How the pushes of a stream to its multistream targets do.

-- +goose Up
ALTER TABLE live ADD COLUMN pushes TEXT NOT NULL DEFAULT '[]'; -- as the API shows them

-- +goose Down
ALTER TABLE live DROP COLUMN pushes;
