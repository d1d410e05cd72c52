package api

import (
	"net/http"

	"weir/internal/weir"
)

// listNodes answers GET /node.
func (s *server) listNodes(w http.ResponseWriter, r *request) error {
	nodes, err := s.Store.Nodes(r.Context())
	if err != nil {
		return err
	}
	if nodes == nil {
		nodes = []weir.Node{}
	}
	return writeJSON(w, http.StatusOK, nodes)
}

// getQueue answers GET /queue.
func (s *server) getQueue(w http.ResponseWriter, r *request) error {
	queue, err := s.Store.Queue(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, queue)
}

// listQueuedTasks answers GET /queue/task.
func (s *server) listQueuedTasks(w http.ResponseWriter, r *request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	q.UserID, q.ProjectID = r.URL.Query().Get("userId"), ""
	page, err := s.Store.QueuedTasks(r.Context(), q)
	if err != nil {
		return err
	}
	return writePage(s, w, r, q, page, asIs)
}
