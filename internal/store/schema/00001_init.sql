-- The tables of weir. Only types that SQLite and PostgreSQL share: TEXT, BIGINT,
-- DOUBLE PRECISION, BOOLEAN, BYTEA. Times are Unix milliseconds. Every resource has
-- the columns it is found and ordered by, a document (doc) just as the API shows
-- it, and, where it has such, a part that is not shown (hidden) and one that is
-- sealed. Nothing is NULL: what is missing is '' or 0.

-- +goose Up

-- Numbers that only grow. Those of the topics are watched for changes; that of
-- events is also their order: the row is locked until the commit, so events are
-- numbered in the order in which they can be read.
CREATE TABLE counter (
	name  TEXT PRIMARY KEY,
	value BIGINT NOT NULL
);
INSERT INTO counter (name, value) VALUES ('event', 0), ('auth', 0);

-- Keys that are made once and sealed with the master secret.
CREATE TABLE secret (
	name   TEXT PRIMARY KEY,
	sealed BYTEA NOT NULL
);

CREATE TABLE node (
	id         TEXT PRIMARY KEY,
	boot       TEXT NOT NULL,
	started_at BIGINT NOT NULL,
	seen_at    BIGINT NOT NULL
);

-- Wishes to stop the jobs of a task (or whatever the job is about).
CREATE TABLE job_cancel (
	ref        TEXT PRIMARY KEY,
	created_at BIGINT NOT NULL
);

CREATE TABLE account (
	id               TEXT PRIMARY KEY,
	email            TEXT NOT NULL UNIQUE,
	email_valid      BOOLEAN NOT NULL,
	admin            BOOLEAN NOT NULL,
	created_at       BIGINT NOT NULL,
	password         TEXT NOT NULL,
	last_admitted_at BIGINT NOT NULL DEFAULT 0,
	last_seen        BIGINT NOT NULL DEFAULT 0,
	doc              TEXT NOT NULL,
	hidden           TEXT NOT NULL
);

CREATE TABLE project (
	id         TEXT PRIMARY KEY,
	user_id    TEXT NOT NULL,
	name       TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	deleted    BOOLEAN NOT NULL,
	doc        TEXT NOT NULL,
	hidden     TEXT NOT NULL
);
CREATE INDEX project_user ON project (user_id, created_at, id);

CREATE TABLE api_token (
	id         TEXT PRIMARY KEY,
	user_id    TEXT NOT NULL,
	project_id TEXT NOT NULL,
	name       TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	last_seen  BIGINT NOT NULL,
	key_hash   TEXT NOT NULL UNIQUE,
	doc        TEXT NOT NULL,
	hidden     TEXT NOT NULL
);
CREATE INDEX api_token_user ON api_token (user_id, id);

CREATE TABLE refresh_token (
	hash       TEXT PRIMARY KEY,
	user_id    TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	used_at    BIGINT NOT NULL,
	revoked    BOOLEAN NOT NULL
);
CREATE INDEX refresh_token_user ON refresh_token (user_id);

-- One-time links with which a person sets a password.
CREATE TABLE password_link (
	hash       TEXT PRIMARY KEY,
	user_id    TEXT NOT NULL,
	expires_at BIGINT NOT NULL
);

CREATE TABLE stream (
	id                           TEXT PRIMARY KEY,
	user_id                      TEXT NOT NULL,
	project_id                   TEXT NOT NULL,
	deleted                      BOOLEAN NOT NULL,
	created_at                   BIGINT NOT NULL,
	last_seen                    BIGINT NOT NULL,
	name_lower                   TEXT NOT NULL,
	creator_id                   TEXT NOT NULL,
	playback_id                  TEXT NOT NULL UNIQUE,
	stream_key_lookup            TEXT NOT NULL UNIQUE,
	pull_source_lookup           TEXT NOT NULL,
	is_active                    BOOLEAN NOT NULL,
	is_healthy                   BOOLEAN NOT NULL,
	record                       BOOLEAN NOT NULL,
	suspended                    BOOLEAN NOT NULL,
	source_segments              BIGINT NOT NULL,
	transcoded_segments          BIGINT NOT NULL,
	source_segments_duration     DOUBLE PRECISION NOT NULL,
	transcoded_segments_duration DOUBLE PRECISION NOT NULL,
	doc                          TEXT NOT NULL,
	hidden                       TEXT NOT NULL,
	sealed                       BYTEA NOT NULL
);
CREATE INDEX stream_list ON stream (user_id, project_id, deleted, last_seen DESC, created_at DESC, id DESC);
CREATE INDEX stream_creator ON stream (user_id, project_id, creator_id, deleted, last_seen DESC, created_at DESC, id DESC);
CREATE INDEX stream_pull ON stream (pull_source_lookup);

CREATE TABLE session (
	id                           TEXT PRIMARY KEY,
	user_id                      TEXT NOT NULL,
	project_id                   TEXT NOT NULL,
	deleted                      BOOLEAN NOT NULL,
	created_at                   BIGINT NOT NULL,
	last_seen                    BIGINT NOT NULL,
	name                         TEXT NOT NULL,
	parent_id                    TEXT NOT NULL,
	playback_id                  TEXT NOT NULL,
	record                       BOOLEAN NOT NULL,
	source_segments              BIGINT NOT NULL,
	transcoded_segments          BIGINT NOT NULL,
	source_segments_duration     DOUBLE PRECISION NOT NULL,
	transcoded_segments_duration DOUBLE PRECISION NOT NULL,
	source_bytes                 BIGINT NOT NULL,
	transcoded_bytes             BIGINT NOT NULL,
	ingest_rate                  DOUBLE PRECISION NOT NULL,
	outgoing_rate                DOUBLE PRECISION NOT NULL,
	doc                          TEXT NOT NULL,
	hidden                       TEXT NOT NULL
);
CREATE INDEX session_list ON session (user_id, project_id, deleted, last_seen DESC, created_at DESC, id DESC);
CREATE INDEX session_parent ON session (parent_id, deleted, last_seen DESC, created_at DESC, id DESC);

CREATE TABLE asset (
	id                TEXT PRIMARY KEY,
	user_id           TEXT NOT NULL,
	project_id        TEXT NOT NULL,
	deleted           BOOLEAN NOT NULL,
	created_at        BIGINT NOT NULL,
	updated_at        BIGINT NOT NULL,
	name_lower        TEXT NOT NULL,
	creator_id        TEXT NOT NULL,
	playback_id       TEXT NOT NULL UNIQUE,
	phase             TEXT NOT NULL,
	cid               TEXT NOT NULL,
	nft_metadata_cid  TEXT NOT NULL,
	object_store_id   TEXT NOT NULL,
	source_type       TEXT NOT NULL,
	source_url        TEXT NOT NULL,
	source_session_id TEXT NOT NULL,
	source_asset_id   TEXT NOT NULL,
	source_playback_id TEXT NOT NULL,
	doc               TEXT NOT NULL,
	hidden            TEXT NOT NULL
);
CREATE INDEX asset_list ON asset (user_id, project_id, deleted, updated_at DESC, created_at DESC, id DESC);
CREATE INDEX asset_creator ON asset (user_id, project_id, creator_id, deleted, updated_at DESC, created_at DESC, id DESC);
CREATE INDEX asset_source_session ON asset (source_session_id, updated_at DESC);
CREATE INDEX asset_source_asset ON asset (source_asset_id, updated_at DESC);
CREATE INDEX asset_source_playback ON asset (source_playback_id, updated_at DESC);
CREATE INDEX asset_source_url ON asset (source_url);
CREATE INDEX asset_cid ON asset (cid);

CREATE TABLE task (
	id              TEXT PRIMARY KEY,
	user_id         TEXT NOT NULL,
	project_id      TEXT NOT NULL,
	created_at      BIGINT NOT NULL,
	updated_at      BIGINT NOT NULL,
	scheduled_at    BIGINT NOT NULL,
	type            TEXT NOT NULL,
	phase           TEXT NOT NULL,
	admitted        BOOLEAN NOT NULL DEFAULT FALSE,
	input_asset_id  TEXT NOT NULL,
	output_asset_id TEXT NOT NULL,
	has_secrets     BOOLEAN NOT NULL,
	doc             TEXT NOT NULL,
	sealed          BYTEA NOT NULL
);
CREATE INDEX task_list ON task (user_id, project_id, updated_at DESC, id DESC);
CREATE INDEX task_phase ON task (phase, user_id, scheduled_at);
CREATE INDEX task_output ON task (output_asset_id);
CREATE INDEX task_input ON task (input_asset_id);
CREATE INDEX task_secrets ON task (has_secrets, phase, updated_at);

CREATE TABLE target (
	id         TEXT PRIMARY KEY,
	user_id    TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	name       TEXT NOT NULL,
	disabled   BOOLEAN NOT NULL,
	url_lookup TEXT NOT NULL,
	doc        TEXT NOT NULL,
	sealed     BYTEA NOT NULL
);
CREATE INDEX target_user ON target (user_id, id);

-- Which streams are pushed on to which targets.
CREATE TABLE stream_target (
	stream_id TEXT NOT NULL,
	target_id TEXT NOT NULL,
	PRIMARY KEY (target_id, stream_id)
);
CREATE INDEX stream_target_stream ON stream_target (stream_id);

CREATE TABLE webhook (
	id         TEXT PRIMARY KEY,
	user_id    TEXT NOT NULL,
	project_id TEXT NOT NULL,
	deleted    BOOLEAN NOT NULL,
	created_at BIGINT NOT NULL,
	name       TEXT NOT NULL,
	url_lookup TEXT NOT NULL,
	doc        TEXT NOT NULL,
	hidden     TEXT NOT NULL,
	sealed     BYTEA NOT NULL
);
CREATE INDEX webhook_user ON webhook (user_id, project_id, deleted, id);

CREATE TABLE webhook_log (
	id          TEXT PRIMARY KEY,
	webhook_id  TEXT NOT NULL,
	user_id     TEXT NOT NULL,
	project_id  TEXT NOT NULL,
	created_at  BIGINT NOT NULL,
	event       TEXT NOT NULL,
	success     TEXT NOT NULL,
	status_code TEXT NOT NULL,
	body_lower  TEXT NOT NULL,
	doc         TEXT NOT NULL,
	hidden      TEXT NOT NULL,
	sealed      BYTEA NOT NULL
);
CREATE INDEX webhook_log_list ON webhook_log (webhook_id, created_at DESC, id DESC);
CREATE INDEX webhook_log_age ON webhook_log (created_at);

CREATE TABLE event (
	seq        BIGINT PRIMARY KEY,
	id         TEXT NOT NULL,
	user_id    TEXT NOT NULL,
	project_id TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	name       TEXT NOT NULL,
	resource   TEXT NOT NULL,
	stream_id  TEXT NOT NULL,
	doc        TEXT NOT NULL
);
CREATE INDEX event_project ON event (user_id, project_id, seq);
CREATE INDEX event_age ON event (created_at);

-- One row per webhook and event that is still to be delivered.
CREATE TABLE delivery (
	webhook_id TEXT NOT NULL,
	event_seq  BIGINT NOT NULL,
	resource   TEXT NOT NULL,
	due_at     BIGINT NOT NULL,
	attempts   BIGINT NOT NULL,
	claimed_by BIGINT NOT NULL DEFAULT 0, -- the job that is sending it, while that runs; 0 = none
	PRIMARY KEY (webhook_id, event_seq)
);
CREATE INDEX delivery_queue ON delivery (webhook_id, resource, event_seq);
CREATE INDEX delivery_claim ON delivery (webhook_id, resource, claimed_by);

CREATE TABLE signing_key (
	id         TEXT PRIMARY KEY,
	user_id    TEXT NOT NULL,
	project_id TEXT NOT NULL,
	deleted    BOOLEAN NOT NULL,
	created_at BIGINT NOT NULL,
	last_seen  BIGINT NOT NULL,
	name       TEXT NOT NULL,
	public_key TEXT NOT NULL,
	doc        TEXT NOT NULL,
	hidden     TEXT NOT NULL
);
CREATE INDEX signing_key_user ON signing_key (user_id, project_id, deleted, created_at DESC, id DESC);
CREATE INDEX signing_key_public ON signing_key (public_key);

CREATE TABLE object_store (
	id         TEXT PRIMARY KEY,
	user_id    TEXT NOT NULL,
	deleted    BOOLEAN NOT NULL,
	created_at BIGINT NOT NULL,
	name       TEXT NOT NULL,
	public_url TEXT NOT NULL,
	disabled   BOOLEAN NOT NULL,
	url_lookup TEXT NOT NULL,
	doc        TEXT NOT NULL,
	hidden     TEXT NOT NULL,
	sealed     BYTEA NOT NULL
);
CREATE INDEX object_store_user ON object_store (user_id, deleted, id);

-- One row per viewer and thing watched.
CREATE TABLE viewing (
	id             TEXT PRIMARY KEY,
	user_id        TEXT NOT NULL,
	project_id     TEXT NOT NULL,
	playback_id    TEXT NOT NULL,
	asset_id       TEXT NOT NULL,
	stream_id      TEXT NOT NULL,
	creator_id     TEXT NOT NULL,
	viewer_id      TEXT NOT NULL,
	started_at     BIGINT NOT NULL,
	last_seen      BIGINT NOT NULL,
	playtime_ms    BIGINT NOT NULL,
	ttff_ms        BIGINT NOT NULL,
	rebuffer_ms    BIGINT NOT NULL,
	errors         BIGINT NOT NULL,
	exited_early   BOOLEAN NOT NULL,
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
	geohash        TEXT NOT NULL
);
CREATE INDEX viewing_user ON viewing (user_id, project_id, started_at);
CREATE INDEX viewing_playback ON viewing (playback_id, started_at);
CREATE INDEX viewing_now ON viewing (user_id, project_id, last_seen);

CREATE TABLE usage_hour (
	user_id     TEXT NOT NULL,
	creator_id  TEXT NOT NULL,
	hour        BIGINT NOT NULL,
	delivery_ms BIGINT NOT NULL,
	total_ms    BIGINT NOT NULL,
	storage_ms  BIGINT NOT NULL,
	PRIMARY KEY (user_id, hour, creator_id)
);

-- +goose Down
DROP TABLE usage_hour;
DROP TABLE viewing;
DROP TABLE object_store;
DROP TABLE signing_key;
DROP TABLE delivery;
DROP TABLE event;
DROP TABLE webhook_log;
DROP TABLE webhook;
DROP TABLE stream_target;
DROP TABLE target;
DROP TABLE task;
DROP TABLE asset;
DROP TABLE session;
DROP TABLE stream;
DROP TABLE password_link;
DROP TABLE refresh_token;
DROP TABLE api_token;
DROP TABLE project;
DROP TABLE account;
DROP TABLE job_cancel;
DROP TABLE node;
DROP TABLE secret;
DROP TABLE counter;
