package access

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"weir/internal/weir"
)

// Another response of the webhook counts when the interval of the policy is over.
func TestWebhookIsAskedAgain(t *testing.T) {
	t.Parallel()
	all := newAdmissions()
	a := &Title{PlaybackID: "p", Policy: &weir.PlaybackPolicy{Type: weir.PolicyWebhook, WebhookID: "w"}}
	now := time.Now()
	all.note(admissionOf(a, "key"), now.Add(time.Minute))
	for _, tt := range []struct {
		name string
		one  admission
		at   time.Time
		want bool
	}{
		{"at once", admissionOf(a, "key"), now, true},
		{"before the interval is over", admissionOf(a, "key"), now.Add(59 * time.Second), true},
		{"after", admissionOf(a, "key"), now.Add(time.Minute), false},
		{"another key", admissionOf(a, "other"), now, false},
		{"another asset", admissionOf(&Title{PlaybackID: "q", Policy: a.Policy}, "key"), now, false},
		{"another webhook", admissionOf(&Title{PlaybackID: "p", Policy: &weir.PlaybackPolicy{WebhookID: "v"}}, "key"), now, false},
	} {
		if got, _ := all.find(tt.one, tt.at); got != tt.want {
			t.Errorf("%s: holds = %v, want %v", tt.name, got, tt.want)
		}
	}
	for i := range 2 * maxAdmissions {
		all.note(admissionOf(a, fmt.Sprint(i)), now.Add(time.Minute))
	}
	if len(all.till) > maxAdmissions {
		t.Errorf("%d admissions are remembered", len(all.till))
	}
	no := weir.Errorf(weir.Denied, "no")
	all.refuse(admissionOf(a, "wrong"), no, now.Add(refusalLife))
	for after, want := range map[time.Duration]error{0: no, refusalLife - 1: no, refusalLife: nil} {
		if _, got := all.find(admissionOf(a, "wrong"), now.Add(after)); !errors.Is(got, want) {
			t.Errorf("%s after a refusal: %v, want %v", after, got, want)
		}
	}
	for i := range 2 * maxAdmissions {
		all.refuse(admissionOf(a, fmt.Sprint(i)), no, now.Add(refusalLife))
	}
	if len(all.refused) > maxAdmissions {
		t.Errorf("%d refusals are remembered", len(all.refused))
	}
}
