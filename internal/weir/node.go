package weir

// NodeReport is what a node says about itself with each heartbeat.
type NodeReport struct {
	Version  string   `json:"version"`
	Runs     []string `json:"runs"` // api, live, work
	Cores    int      `json:"cores"`
	DiskFree int64    `json:"diskFree,omitempty"` // bytes of the disk with its data folder; 0 = not known
	DiskKeep int64    `json:"diskKeep,omitempty"` // with less than this, it accepts no new media
}

// Node is a machine of the service, as administrators see it.
type Node struct {
	ID  string `json:"id"`
	URL string `json:"url,omitempty"` // at which other nodes reach it; "" = they can't
	NodeReport
	StartedAt       Millis `json:"startedAt"`
	LastSeen        Millis `json:"lastSeen"` // its last heartbeat
	Alive           bool   `json:"alive"`
	EncodeSlots     int    `json:"encodeSlots"` // pieces of tasks that it encodes at once
	EncodeSlotsUsed int    `json:"encodeSlotsUsed"`
	Streams         int    `json:"streams"` // on air
	Jobs            int    `json:"jobs"`    // that run, with those that encode
}

// QueueState is where a task is in the queue.
type QueueState string

// The states of a task in the queue.
const (
	QueueWaiting  QueueState = "waiting"  // for its turn
	QueueStarting QueueState = "starting" // it is its turn, and a node will take it
	QueueRunning  QueueState = "running"
)

// QueuedTask is a task that waits or runs, as administrators see it.
type QueuedTask struct {
	ID            string     `json:"id"`
	Type          TaskType   `json:"type"`
	State         QueueState `json:"state"`
	Position      int        `json:"position,omitempty"` // among those that wait; 1 = next
	UserID        string     `json:"userId"`
	Email         string     `json:"email,omitempty"`
	ProjectID     string     `json:"projectId,omitempty"`
	InputAssetID  string     `json:"inputAssetId,omitempty"`
	OutputAssetID string     `json:"outputAssetId,omitempty"`
	CreatedAt     Millis     `json:"createdAt"`
	ScheduledAt   Millis     `json:"scheduledAt,omitempty"`
	DueAt         Millis     `json:"dueAt,omitempty"` // it is tried again then, not before
	Step          string     `json:"step,omitempty"`
	Progress      *float64   `json:"progress,omitempty"`
	ETA           Millis     `json:"eta,omitempty"`
	Retries       int        `json:"retries,omitempty"`
	Nodes         []string   `json:"nodes"` // ids of the nodes that work on it
}

// QueueGroup counts the tasks of one account, one type and one state.
type QueueGroup struct {
	UserID string     `json:"userId"`
	Email  string     `json:"email,omitempty"`
	Type   TaskType   `json:"type"`
	State  QueueState `json:"state"`
	Tasks  int        `json:"tasks"`
	Oldest Millis     `json:"oldest"` // since when the oldest of them is in the queue
}

// DeliveryQueue counts the events that wait to be sent to webhooks.
type DeliveryQueue struct {
	Waiting  int    `json:"waiting"`
	Webhooks int    `json:"webhooks"`         // to which they go
	Paused   int    `json:"paused"`           // of all webhooks
	Oldest   Millis `json:"oldest,omitempty"` // when the oldest of the events happened
}

// Queue is what the service has to do.
type Queue struct {
	Waiting    int           `json:"waiting"` // tasks
	Running    int           `json:"running"` // with those that are starting
	Oldest     Millis        `json:"oldest,omitempty"`
	Groups     []QueueGroup  `json:"groups"`
	Deliveries DeliveryQueue `json:"deliveries"`
}
