package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func TestUserQuota(t *testing.T) {
	limit := func(n int64) *int64 { return &n }
	for name, tt := range map[string]struct {
		changes map[string]string
		want    weir.Quota
		err     string
	}{
		"nothing":      {nil, weir.Quota{weir.Keys: limit(1)}, ""},
		"numbers":      {map[string]string{"streams": "5", "storage": "2TB"}, weir.Quota{weir.Keys: limit(1), weir.Streams: limit(5), weir.Storage: limit(2e12)}, ""},
		"no limit":     {map[string]string{"streams": "none"}, weir.Quota{weir.Keys: limit(1), weir.Streams: nil}, ""},
		"default":      {map[string]string{"keys": "default"}, weir.Quota{}, ""},
		"not a number": {map[string]string{"streams": "many"}, nil, "streams=many: the limit must be a whole number, none or default"},
		"not a size":   {map[string]string{"storage": "much"}, nil, `"much" is not a size; write it like 500MB or 30GiB`},
		"unknown": {
			map[string]string{"sessions": "1"},
			nil,
			`"sessions" has no quota; these have one: storage, streams, assets, webhooks, targets, objectStores, projects, keys`,
		},
	} {
		change, err := userQuotaCmd{Changes: tt.changes}.parse()
		if err != nil || tt.err != "" {
			if err == nil || err.Error() != tt.err {
				t.Errorf("%s: %v, want %q", name, err, tt.err)
			}
			continue
		}
		u := weir.User{Quota: weir.Quota{weir.Keys: limit(1)}}
		if err := change(&u); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(tt.want, u.Quota); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
