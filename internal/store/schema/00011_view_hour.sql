-- Views that are over, added up.

-- +goose Up

-- The sums of views that were deleted, by hour and by everything that views are grouped by but the
-- viewer. The columns have the names and the meaning of those of viewing.
CREATE TABLE view_hour (
	id             TEXT PRIMARY KEY, -- a hash of the columns up to geohash
	started_at     BIGINT NOT NULL,  -- the start of the hour in which the views started
	user_id        TEXT NOT NULL,
	project_id     TEXT NOT NULL,
	playback_id    TEXT NOT NULL,
	asset_id       TEXT NOT NULL,
	stream_id      TEXT NOT NULL,
	creator_id     TEXT NOT NULL,
	device_type    TEXT NOT NULL,
	device         TEXT NOT NULL,
	cpu            TEXT NOT NULL,
	os             TEXT NOT NULL,
	browser        TEXT NOT NULL,
	browser_engine TEXT NOT NULL,
	continent      TEXT NOT NULL,
	country        TEXT NOT NULL,
	subdivision    TEXT NOT NULL,
	timezone       TEXT NOT NULL,
	geohash        TEXT NOT NULL,
	views          BIGINT NOT NULL,
	playtime_ms    BIGINT NOT NULL,
	rebuffer_ms    BIGINT NOT NULL,
	ttff_ms        BIGINT NOT NULL,
	ttff_views     BIGINT NOT NULL, -- views whose ttff_ms is known
	errors         BIGINT NOT NULL, -- views with errors
	exits          BIGINT NOT NULL  -- views that ended early
);
CREATE INDEX view_hour_user ON view_hour (user_id, project_id, started_at);
CREATE INDEX view_hour_playback ON view_hour (playback_id, started_at);

ALTER TABLE viewing ADD COLUMN node TEXT NOT NULL DEFAULT ''; -- that counts the view

-- For the views that are to be deleted, and for the viewers that an account has at the moment.
CREATE INDEX viewing_age ON viewing (started_at);
DROP INDEX viewing_now;
CREATE INDEX viewing_now ON viewing (user_id, last_seen, node);

-- +goose Down
DROP INDEX viewing_now;
DROP INDEX viewing_age;
ALTER TABLE viewing DROP COLUMN node;
CREATE INDEX viewing_now ON viewing (user_id, project_id, last_seen);
DROP TABLE view_hour;
