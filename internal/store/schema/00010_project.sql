-- Targets and object stores belong to a project.

-- +goose Up
ALTER TABLE target ADD COLUMN project_id TEXT NOT NULL DEFAULT '';
ALTER TABLE target ADD COLUMN hidden TEXT NOT NULL DEFAULT '{}';
ALTER TABLE object_store ADD COLUMN project_id TEXT NOT NULL DEFAULT '';

-- The project of the streams that name the target if that is one, or the default project of
-- its owner. Some ids are only in documents: a pattern finds them on both engines.
UPDATE target SET project_id = COALESCE(
	(SELECT min(s.project_id) FROM stream_target r JOIN stream s ON s.id = r.stream_id
		WHERE r.target_id = target.id AND s.user_id = target.user_id AND NOT s.deleted
		GROUP BY r.target_id HAVING count(DISTINCT s.project_id) = 1),
	(SELECT min(p.id) FROM project p JOIN account a ON a.id = p.user_id
		WHERE p.user_id = target.user_id AND a.doc LIKE '%"defaultProjectId":"' || p.id || '"%'),
	'');
UPDATE target SET hidden = '{"projectId":"' || project_id || '"}' WHERE project_id <> '';

-- The same by the assets and streams that name the object store.
UPDATE object_store SET project_id = COALESCE(
	(SELECT min(u.project_id) FROM (
			SELECT a.project_id FROM asset a WHERE a.object_store_id = object_store.id AND a.user_id = object_store.user_id AND NOT a.deleted
			UNION
			SELECT s.project_id FROM stream s WHERE s.user_id = object_store.user_id AND NOT s.deleted
				AND s.hidden LIKE '%"objectStoreId":"' || object_store.id || '"%'
		) u HAVING count(*) = 1),
	(SELECT min(p.id) FROM project p JOIN account a ON a.id = p.user_id
		WHERE p.user_id = object_store.user_id AND a.doc LIKE '%"defaultProjectId":"' || p.id || '"%'),
	'');
UPDATE object_store SET hidden = CASE WHEN deleted THEN '{"deleted":true,"projectId":"' ELSE '{"projectId":"' END || project_id || '"}'
	WHERE project_id <> '';

DROP INDEX target_user;
CREATE INDEX target_user ON target (user_id, project_id, id);
DROP INDEX object_store_user;
CREATE INDEX object_store_user ON object_store (user_id, project_id, deleted, id);

-- +goose Down
DROP INDEX object_store_user;
CREATE INDEX object_store_user ON object_store (user_id, deleted, id);
DROP INDEX target_user;
CREATE INDEX target_user ON target (user_id, id);
ALTER TABLE object_store DROP COLUMN project_id;
ALTER TABLE target DROP COLUMN hidden;
ALTER TABLE target DROP COLUMN project_id;
