-- Tasks that were admitted are few among those that wait; all of those were read to count them.

-- +goose Up
CREATE INDEX task_admitted ON task (phase, user_id) WHERE admitted;

-- +goose Down
DROP INDEX task_admitted;
