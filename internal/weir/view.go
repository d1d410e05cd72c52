package weir

// View is one viewer watching one thing, from the first request to the last.
type View struct {
	ID            string
	PlaybackID    string
	UserID        string // owner of what is watched
	ProjectID     string
	AssetID       string
	StreamID      string
	CreatorID     string
	ViewerID      string
	StartedAt     Millis
	LastSeen      Millis
	PlaytimeMs    int64
	TTFFMs        int64 // time to the first frame; 0 = unknown
	RebufferMs    int64
	Errors        int
	ExitedEarly   bool // left before the first frame
	DeviceType    string
	Device        string
	CPU           string
	OS            string
	Browser       string
	BrowserEngine string
	Continent     string
	Country       string
	Subdivision   string
	Timezone      string
	Geohash       string
}

// Usage is what one account used in one hour.
type Usage struct {
	UserID     string
	CreatorID  string
	Hour       Millis // its start
	DeliveryMs int64
	TotalMs    int64 // encoded
	StorageMs  int64
}
