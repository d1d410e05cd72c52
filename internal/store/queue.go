package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/weir"
)

// maxQueueGroups is the maximum number of groups that the summary of the queue lists.
const maxQueueGroups = 1000

// queueState is SQL for the state of a task that has not ended. Clips need no turn.
const queueState = `CASE WHEN t.phase = 'running' THEN 'running' WHEN t.admitted OR t.type = 'clip' THEN 'starting' ELSE 'waiting' END`

// inQueue selects the tasks that wait or run, without those of deleted accounts, which do neither.
const inQueue = "t.phase IN ('waiting', 'running') AND t.user_id IN (SELECT id FROM account WHERE NOT deleted)"

// Queue returns a summary of what the service has to do.
func (q *queries) Queue(ctx context.Context) (weir.Queue, error) {
	groups, err := many(ctx, q.conn, func(r rows) (g weir.QueueGroup, err error) {
		return g, r.Scan(&g.UserID, &g.Type, &g.State, &g.Tasks, &g.Oldest)
	}, `SELECT user_id, type, state, count(*), min(since) FROM
		(SELECT t.user_id, t.type, `+queueState+` AS state, t.scheduled_at AS since FROM task t WHERE `+inQueue+`) AS q
		GROUP BY user_id, type, state ORDER BY 4 DESC, 1, 2, 3`)
	if err != nil {
		return weir.Queue{}, err
	}
	queue := weir.Queue{Groups: groups}
	for _, g := range groups {
		if g.State == weir.QueueWaiting {
			queue.Waiting += g.Tasks
		} else {
			queue.Running += g.Tasks
		}
		if queue.Oldest == 0 || g.Oldest < queue.Oldest {
			queue.Oldest = g.Oldest
		}
	}
	if len(queue.Groups) > maxQueueGroups {
		queue.Groups = queue.Groups[:maxQueueGroups]
	}
	if queue.Groups == nil {
		queue.Groups = []weir.QueueGroup{}
	}
	queue.Deliveries, err = q.deliveryQueue(ctx)
	if err != nil {
		return queue, err
	}
	var ids []string
	for _, g := range queue.Groups {
		ids = append(ids, g.UserID)
	}
	emails, err := q.emails(ctx, ids)
	for i, g := range queue.Groups {
		queue.Groups[i].Email = emails[g.UserID]
	}
	return queue, err
}

func (q *queries) deliveryQueue(ctx context.Context) (weir.DeliveryQueue, error) {
	return one(ctx, q.conn, func(r rows) (d weir.DeliveryQueue, err error) {
		return d, r.Scan(&d.Waiting, &d.Webhooks, &d.Paused, &d.Oldest)
	}, `SELECT (SELECT count(*) FROM delivery), (SELECT count(DISTINCT webhook_id) FROM delivery_line),
		(SELECT count(*) FROM webhook WHERE paused_until > 0 AND NOT deleted),
		COALESCE((SELECT created_at FROM event WHERE seq = (SELECT min(event_seq) FROM delivery)), 0)`)
}

// emails returns the e-mail addresses of accounts.
func (q *queries) emails(ctx context.Context, ids []string) (map[string]string, error) {
	slices.Sort(ids)
	users, err := q.UsersByID(ctx, slices.Compact(ids))
	emails := make(map[string]string, len(users))
	for id, u := range users {
		emails[id] = u.Email
	}
	return emails, err
}

// QueuedTasks returns a page of the tasks that run, and then of those that wait, in the order in
// which package work will admit them: accounts take turns. (A test of work compares the two; the
// order is in SQL because a page may be far down the queue.) It uses of the query UserID, Cursor,
// Limit and Count. A cursor is a place in the queue, which moves.
func (q *queries) QueuedTasks(ctx context.Context, query Query) (Page[weir.QueuedTask], error) {
	b := &builder{seal: q.seal}
	offset, err := b.after(ordering{}, query.Cursor)
	if err != nil {
		return Page[weir.QueuedTask]{}, err
	}
	limit := query.Length()
	now, user := b.bind("%s", time.Now().UnixMilli()), ""
	if query.UserID != "" {
		user = " WHERE user_id = " + b.bind("%s", query.UserID)
	}
	// turn counts the tasks of each account and state; place counts those of all.
	sql := `WITH line AS (
			SELECT t.id, t.user_id, t.scheduled_at, a.last_admitted_at, CASE WHEN t.due_at > ` + now + ` THEN t.due_at ELSE 0 END AS due,
				CASE WHEN t.phase = 'running' THEN 0 WHEN t.admitted OR t.type = 'clip' THEN 1 ELSE 2 END AS state
			FROM task t JOIN account a ON a.id = t.user_id WHERE t.phase IN ('waiting', 'running') AND NOT a.deleted
		), turns AS (
			SELECT *, row_number() OVER (PARTITION BY user_id, state ORDER BY due, scheduled_at, id) AS turn FROM line
		), places AS (
			SELECT id, user_id, state, row_number() OVER (PARTITION BY state ORDER BY due, turn, last_admitted_at, user_id) AS place FROM turns
		), page AS (
			SELECT id, state, place FROM places` + user + ` ORDER BY state, place LIMIT ` + strconv.Itoa(limit+1) + ` OFFSET ` + strconv.Itoa(offset) + `
		)
		SELECT t.doc, p.state, p.place, t.due_at, COALESCE(w.node, '') FROM page p JOIN task t ON t.id = p.id LEFT JOIN task_work w ON w.task_id = p.id
		ORDER BY p.state, p.place`
	items, err := many(ctx, q.conn, scanQueued, sql, b.args...)
	if err != nil {
		return Page[weir.QueuedTask]{}, err
	}
	page := Page[weir.QueuedTask]{Items: items}
	if len(items) > limit {
		page.Items, page.Next = items[:limit], "skip"+strconv.Itoa(offset+limit)
	}
	if query.Count {
		count := &builder{}
		count.conditions = append(count.conditions, inQueue)
		if query.UserID != "" {
			count.and("t.user_id = %s", query.UserID)
		}
		n, err := one(ctx, q.conn, scanInt, "SELECT count(*) FROM task t"+count.where(), count.args...)
		if err != nil {
			return page, err
		}
		page.Total = int(n)
	}
	return page, q.completeQueued(ctx, page.Items)
}

func scanQueued(r rows) (t weir.QueuedTask, err error) {
	var doc []byte
	var node string
	var state, place int
	var due weir.Millis
	if err := r.Scan(&doc, &state, &place, &due, &node); err != nil {
		return t, err
	}
	var task weir.Task
	if err := json.Unmarshal(doc, &task); err != nil {
		return t, fmt.Errorf("decode task: %w", err)
	}
	t = weir.QueuedTask{
		ID: task.ID, Type: task.Type, State: []weir.QueueState{weir.QueueRunning, weir.QueueStarting, weir.QueueWaiting}[state], UserID: task.UserID, ProjectID: task.ProjectID,
		InputAssetID: task.InputAssetID, OutputAssetID: task.OutputAssetID, CreatedAt: task.CreatedAt, ScheduledAt: task.ScheduledAt,
		Step: task.Status.Step, Progress: task.Status.Progress, ETA: task.Status.ETA, Nodes: []string{},
	}
	if task.Status.Retries != nil {
		t.Retries = *task.Status.Retries
	}
	if t.State == weir.QueueWaiting {
		t.Position, t.DueAt = place, due
	} else if node != "" {
		t.Nodes = append(t.Nodes, node)
	}
	return t, nil
}

// completeQueued adds the e-mail addresses of the accounts, and the nodes that encode pieces.
func (q *queries) completeQueued(ctx context.Context, tasks []weir.QueuedTask) error {
	if len(tasks) == 0 {
		return nil
	}
	var users, ids []string
	for _, t := range tasks {
		users, ids = append(users, t.UserID), append(ids, t.ID)
	}
	emails, err := q.emails(ctx, users)
	if err != nil {
		return err
	}
	b := &builder{}
	type at struct{ task, node string }
	pieces, err := many(ctx, q.conn, func(r rows) (p at, err error) { return p, r.Scan(&p.task, &p.node) },
		"SELECT DISTINCT task_id, node FROM piece WHERE state = 'running' AND task_id IN ("+b.list(ids)+") ORDER BY 1, 2", b.args...)
	if err != nil {
		return err
	}
	nodes := map[string][]string{}
	for _, p := range pieces {
		nodes[p.task] = append(nodes[p.task], p.node)
	}
	for i := range tasks {
		tasks[i].Email = emails[tasks[i].UserID]
		if encode := nodes[tasks[i].ID]; encode != nil {
			tasks[i].Nodes = encode
		}
	}
	return nil
}

// Nodes returns the nodes of the service. A node that stops, or is silent for a while, is not
// among them any more.
func (s *Store) Nodes(ctx context.Context) ([]weir.Node, error) {
	nodes, err := many(ctx, s.conn, func(r rows) (n weir.Node, err error) {
		var report string
		if err := r.Scan(&n.ID, &n.URL, &report, &n.StartedAt, &n.LastSeen, &n.EncodeSlots, &n.Alive); err != nil {
			return n, err
		}
		if err := json.Unmarshal([]byte(report), &n.NodeReport); err != nil {
			return n, fmt.Errorf("decode report of node %s: %w", n.ID, err)
		}
		if n.Runs == nil { // it is of an earlier version
			n.Runs = []string{}
		}
		return n, nil
	}, "SELECT id, url, report, started_at, seen_at, slots, seen_at > "+s.engine.now()+" - $1 FROM node ORDER BY started_at, id", deadAfter.Milliseconds())
	if err != nil {
		return nil, err
	}
	type count struct {
		node   string
		encode bool
		n      int
	}
	scan := func(r rows) (c count, err error) { return c, r.Scan(&c.node, &c.encode, &c.n) }
	streams, err := many(ctx, s.conn, scan, "SELECT node, FALSE, count(*) FROM live WHERE session_id <> '' AND connected GROUP BY node")
	if err != nil {
		return nil, err
	}
	jobs, err := many(ctx, s.conn, scan, "SELECT "+s.engine.jobClient()+", queue = '"+queueEncode+"', count(*) FROM river_job WHERE state = 'running' GROUP BY 1, 2")
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		n := &nodes[i]
		for _, c := range streams {
			if c.node == n.ID {
				n.Streams += c.n
			}
		}
		for _, c := range jobs {
			if !strings.HasPrefix(c.node, n.ID+".") {
				continue
			}
			n.Jobs += c.n
			if c.encode {
				n.EncodeSlotsUsed += c.n
			}
		}
	}
	return nodes, nil
}
