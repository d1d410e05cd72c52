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
	const user = "u"
	c := content{playbackID: "p", policy: &weir.PlaybackPolicy{Type: weir.PolicyWebhook, WebhookID: "w"}}
	now := time.Now()
	all.note(user, admissionOf(c, "key"), now.Add(time.Minute))
	for _, tt := range []struct {
		name string
		one  admission
		at   time.Time
		want bool
	}{
		{"at once", admissionOf(c, "key"), now, true},
		{"before the interval is over", admissionOf(c, "key"), now.Add(59 * time.Second), true},
		{"after", admissionOf(c, "key"), now.Add(time.Minute), false},
		{"another key", admissionOf(c, "other"), now, false},
		{"another asset", admissionOf(content{playbackID: "q", policy: c.policy}, "key"), now, false},
		{"another webhook", admissionOf(content{playbackID: "p", policy: &weir.PlaybackPolicy{WebhookID: "v"}}, "key"), now, false},
	} {
		if got, err := all.find(user, tt.one, tt.at); got != tt.want || err != nil {
			t.Errorf("%s: holds = %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
	no := weir.Errorf(weir.Denied, "no")
	all.refuse(user, admissionOf(c, "wrong"), no, now.Add(refusalLife))
	for after, want := range map[time.Duration]error{0: no, refusalLife - 1: no, refusalLife: nil} {
		if _, got := all.find(user, admissionOf(c, "wrong"), now.Add(after)); !errors.Is(got, want) {
			t.Errorf("%s after a refusal: %v, want %v", after, got, want)
		}
	}
	all.note(user, admissionOf(c, "wrong"), now.Add(time.Minute))
	if ok, err := all.find(user, admissionOf(c, "wrong"), now); !ok || err != nil {
		t.Errorf("a key that has become right: %v, %v", ok, err)
	}
}

// What is remembered of the viewers of one account is bounded, and takes nothing from those of others.
func TestAdmissionsAreBounded(t *testing.T) {
	t.Parallel()
	o := outcomes{max: 100, maxAll: 300}
	till := time.Now().Add(time.Minute)
	key := func(i int) admission {
		return admissionOf(content{policy: &weir.PlaybackPolicy{}}, fmt.Sprint(i))
	}
	o.note("honest", key(-1), outcome{till: till})
	check := func(what string) {
		t.Helper()
		all := 0
		for id, of := range o.users {
			all += len(of)
			if len(of) > o.max {
				t.Fatalf("%s: %d of %s are remembered", what, len(of), id)
			}
		}
		if all != o.all || all > o.maxAll {
			t.Fatalf("%s: %d are remembered, %d counted", what, all, o.all)
		}
		if _, ok := o.find("honest", key(-1), time.Now()); !ok {
			t.Fatalf("%s: the viewer of another account is forgotten", what)
		}
	}
	for i := range 1000 {
		o.note("attacker", key(i), outcome{till: till})
		check("one account")
	}
	for i := range 1000 {
		o.note(fmt.Sprint("attacker ", i%7), key(i), outcome{till: till})
		check("many accounts")
	}
	past := time.Now().Add(-time.Second)
	for i := range 1000 {
		o.note("late", key(i), outcome{till: past})
		check("outcomes that are over")
	}
	o.drop("honest", key(-1))
	o.drop("honest", key(-1))
	if _, ok := o.find("honest", key(-1), time.Now()); ok {
		t.Error("what was dropped is found")
	}
}
