package account

import (
	"strings"
	"testing"
)

// The pre-hash of goodPassword, as a dashboard sends it; computed with another implementation.
const preHashed = "21F3DF79906B5C0C63B87AB415B390C1DE8E6FAC766CD39BA7F075EF973B1BD8"

func TestPreHash(t *testing.T) {
	for _, tt := range []struct{ name, password, want string }{
		{"plain", goodPassword, preHashed},
		{"pre-hash", preHashed, preHashed},
		{"pre-hash in lower case", strings.ToLower(preHashed), preHashed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := preHash(tt.password)
			if err != nil || got != tt.want {
				t.Errorf("pre-hash %s (%v), want %s", got, err, tt.want)
			}
		})
	}
	// 64 characters that are no hex are a password like any other.
	long := strings.Repeat("z", 64)
	if got, err := preHash(long); err != nil || got == strings.ToUpper(long) || len(got) != 64 {
		t.Errorf("pre-hash of 64 letters: %s, %v", got, err)
	}
}

func TestHash(t *testing.T) {
	h := newHasher(2)
	kept, err := h.hash(t.Context(), goodPassword)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(kept, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("kept %q, want argon2id with its cost", kept)
	}
	other, err := h.hash(t.Context(), goodPassword)
	if err != nil || other == kept {
		t.Errorf("two hashes of one password are the same; they need salt (%v)", err)
	}
	for _, tt := range []struct {
		name, kept, password string
		want                 bool
	}{
		{"right", kept, goodPassword, true},
		{"right, pre-hashed", kept, preHashed, true},
		{"wrong", kept, goodPassword + "!", false},
		{"empty", kept, "", false},
		{"none set", "", goodPassword, false},
		{"none set, empty", "", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := h.matches(t.Context(), tt.kept, tt.password)
			if err != nil || got != tt.want {
				t.Errorf("matches = %v (%v), want %v", got, err, tt.want)
			}
		})
	}
	// A hash of another cost still works, and differs.
	h.cost.memory = 64
	cheap, err := h.hash(t.Context(), goodPassword)
	if err != nil || !strings.HasPrefix(cheap, "$argon2id$v=19$m=64,t=2,p=1$") {
		t.Fatal(cheap, err)
	}
	for _, kept := range []string{kept, cheap} {
		if ok, err := h.matches(t.Context(), kept, goodPassword); err != nil || !ok {
			t.Errorf("%q does not match after the cost was changed: %v", kept, err)
		}
	}
	sum := cheap[strings.LastIndex(cheap, "$")+1:]
	for _, bad := range []string{
		"plain", "$argon2id$v=19$m=64,t=2,p=1$YQ$YQ", "$argon2id$v=19$m=64,t=2,p=1$" + sum, "$argon2id$v=18$m=64,t=2,p=1$YQ$" + sum,
		"$argon2i$v=19$m=64,t=2,p=1$YQ$" + sum, "$argon2id$v=19$m=64,t=0,p=1$YQ$" + sum, "$argon2id$v=19$m=64,t=2,p=1$!$" + sum,
	} {
		if _, err := h.matches(t.Context(), bad, goodPassword); err == nil {
			t.Errorf("%q counts as a hash", bad)
		}
	}
}
