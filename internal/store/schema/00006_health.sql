-- How streams on air did.

-- +goose Up

CREATE TABLE health (
	stream_id TEXT NOT NULL,
	at        BIGINT NOT NULL, -- the end of the seconds that it tells of
	sample    TEXT NOT NULL,   -- JSON
	PRIMARY KEY (stream_id, at)
);
CREATE INDEX health_at ON health (at);

-- +goose Down
DROP TABLE health;
