-- Deliveries are claimed by nodes, not by jobs, and webhooks that time out are paused.

-- +goose Up

-- The deliveries of one webhook about one resource are a line: at most one of a line is sent at a
-- time. A line has a row while it has deliveries, and a node that sends one of them claims the row.
CREATE TABLE delivery_line (
	webhook_id TEXT NOT NULL,
	resource   TEXT NOT NULL,
	due_at     BIGINT NOT NULL, -- of the delivery that is due first
	claim      TEXT NOT NULL,   -- node and boot, as node.client() has them; '' = none
	PRIMARY KEY (webhook_id, resource)
);
CREATE INDEX delivery_line_due ON delivery_line (claim, webhook_id, due_at);

DROP INDEX delivery_claim;
DROP INDEX delivery_queue;
ALTER TABLE delivery DROP COLUMN claimed_by;
UPDATE delivery SET due_at = 0 WHERE attempts = 0; -- a first attempt is due at once
CREATE INDEX delivery_due ON delivery (webhook_id, resource, due_at, event_seq);
CREATE INDEX delivery_event ON delivery (event_seq);
INSERT INTO delivery_line (webhook_id, resource, due_at, claim)
	SELECT webhook_id, resource, min(due_at), '' FROM delivery GROUP BY webhook_id, resource;
DELETE FROM river_job WHERE kind = 'webhook';

-- Copies of what the status says, to find the webhooks that may be sent to.
ALTER TABLE webhook ADD COLUMN timeouts BIGINT NOT NULL DEFAULT 0;     -- in a row
ALTER TABLE webhook ADD COLUMN paused_until BIGINT NOT NULL DEFAULT 0; -- 0 = not paused
CREATE INDEX webhook_paused ON webhook (paused_until) WHERE paused_until > 0;

-- +goose Down
DROP INDEX webhook_paused;
ALTER TABLE webhook DROP COLUMN paused_until;
ALTER TABLE webhook DROP COLUMN timeouts;
DROP INDEX delivery_event;
DROP INDEX delivery_due;
ALTER TABLE delivery ADD COLUMN claimed_by BIGINT NOT NULL DEFAULT 0;
CREATE INDEX delivery_claim ON delivery (webhook_id, resource, claimed_by);
CREATE INDEX delivery_queue ON delivery (webhook_id, resource, event_seq);
DROP TABLE delivery_line;
