package weir

import "fmt"

// Resource is something that an account can have a limited amount of.
type Resource string

// The resources that have a quota.
const (
	Storage      Resource = "storage" // bytes of assets, uploads and recordings in weir's storage
	Streams      Resource = "streams"
	Assets       Resource = "assets"
	Webhooks     Resource = "webhooks"
	Targets      Resource = "targets"
	ObjectStores Resource = "objectStores"
	Projects     Resource = "projects"
	Keys         Resource = "keys" // API keys; MaxSigningKeys limits signing keys
)

// Resources lists the resources that have a quota.
func Resources() []Resource {
	return []Resource{Storage, Streams, Assets, Webhooks, Targets, ObjectStores, Projects, Keys}
}

// The quota of an account that has no other.
const (
	maxStorage      = 1 << 40
	maxStreams      = 10_000
	maxAssets       = 100_000
	maxWebhooks     = 100
	maxTargets      = 1000
	maxObjectStores = 100
	maxProjects     = 100
	maxKeys         = 100
)

// Quota is how much an account may have of each resource. A resource that is not in it has the
// default; nil = there is no limit.
type Quota map[Resource]*int64

// Limit returns how much of a resource the account may have. ok is false if there is no limit, as
// for an administrator whose quota was not set.
func (u *User) Limit(r Resource) (limit int64, ok bool) {
	if own, set := u.Quota[r]; set {
		if own == nil {
			return 0, false
		}
		return *own, true
	}
	if u.Admin {
		return 0, false
	}
	switch r {
	case Storage:
		return maxStorage, true
	case Streams:
		return maxStreams, true
	case Assets:
		return maxAssets, true
	case Webhooks:
		return maxWebhooks, true
	case Targets:
		return maxTargets, true
	case ObjectStores:
		return maxObjectStores, true
	case Projects:
		return maxProjects, true
	case Keys:
		return maxKeys, true
	}
	return 0, false
}

// CheckQuota returns an error if an account that uses so much of a resource may not have more of it.
func (u *User) CheckQuota(r Resource, used, more int64) error {
	limit, limited := u.Limit(r)
	if !limited || used+more <= limit {
		return nil
	}
	name, amount := string(r), fmt.Sprint(limit)
	switch r {
	case Storage:
		amount = fmt.Sprintf("%.1f GB", float64(limit)/1e9)
	case Targets:
		name = "multistream targets"
	case ObjectStores:
		name = "object stores"
	case Keys:
		name = "API keys"
	}
	return Errorf(Denied, "this account has reached its quota of %s (%s); delete some, or ask the operator of this server for more", name, amount)
}

// SetQuota changes the quota of the resources that are in changes.
func (u *User) SetQuota(changes Quota) {
	quota := Quota{}
	for r, limit := range u.Quota {
		quota[r] = limit
	}
	for r, limit := range changes {
		quota[r] = limit
	}
	u.Quota = quota
}
