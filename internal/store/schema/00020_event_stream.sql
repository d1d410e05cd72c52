-- The events of a stream, the latest first: those of the whole project were read for them.

-- +goose Up
CREATE INDEX event_stream ON event (stream_id, seq) WHERE stream_id <> '';

-- +goose Down
DROP INDEX event_stream;
