package weir

import "testing"

func TestQuota(t *testing.T) {
	limit := func(n int64) *int64 { return &n }
	for name, tt := range map[string]struct {
		user       User
		resource   Resource
		used, more int64
		want       string // the error; "" = none
	}{
		"below the default": {User{}, Webhooks, 99, 1, ""},
		"at the default":    {User{}, Webhooks, 100, 1, "this account has reached its quota of webhooks (100); delete some, or ask the operator of this server for more"},
		"own limit":         {User{Quota: Quota{Targets: limit(2)}}, Targets, 2, 1, "this account has reached its quota of multistream targets (2); delete some, or ask the operator of this server for more"},
		"own higher limit":  {User{Quota: Quota{Webhooks: limit(200)}}, Webhooks, 100, 1, ""},
		"own limit of 0":    {User{Quota: Quota{Keys: limit(0)}}, Keys, 0, 1, "this account has reached its quota of API keys (0); delete some, or ask the operator of this server for more"},
		"no limit":          {User{Quota: Quota{Streams: nil}}, Streams, 1 << 40, 1, ""},
		"storage":           {User{Quota: Quota{Storage: limit(5e9)}}, Storage, 4e9, 2e9, "this account has reached its quota of storage (5.0 GB); delete some, or ask the operator of this server for more"},
		"admin":             {User{Admin: true}, Projects, 1 << 40, 1, ""},
		"admin with limit":  {User{Admin: true, Quota: Quota{Projects: limit(1)}}, Projects, 1, 1, "this account has reached its quota of projects (1); delete some, or ask the operator of this server for more"},
	} {
		err := tt.user.CheckQuota(tt.resource, tt.used, tt.more)
		if err == nil && tt.want != "" || err != nil && (err.Error() != tt.want || KindOf(err) != Denied) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	for _, r := range Resources() {
		if _, limited := (&User{}).Limit(r); !limited {
			t.Errorf("%s has no default", r)
		}
	}
}
