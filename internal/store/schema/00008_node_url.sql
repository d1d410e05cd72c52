-- How nodes reach one another.

-- +goose Up
ALTER TABLE node ADD COLUMN url TEXT NOT NULL DEFAULT ''; -- '' = others can't reach it

-- +goose Down
ALTER TABLE node DROP COLUMN url;
