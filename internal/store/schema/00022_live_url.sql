-- The address of the node that carries a stream, which others need also when they have taken the node
-- for dead.

-- +goose Up
ALTER TABLE live ADD COLUMN url TEXT NOT NULL DEFAULT ''; -- '' = others can't reach it

-- +goose Down
ALTER TABLE live DROP COLUMN url;
