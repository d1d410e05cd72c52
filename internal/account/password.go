package account

import (
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"

	"weir/internal/weir"
)

// A password is stored as argon2id of its pre-hash. The pre-hash is what old dashboards send
// instead of the password: 64 characters of upper-case hex of PBKDF2-SHA256 with a fixed salt. A
// plain password is pre-hashed too, so that both ways of sending it match.
const (
	preHashRounds = 10_000
	preHashSize   = 32
)

var preHashSalt = []byte{0x69, 0x19, 0x5A, 0x94, 0x76, 0xF0, 0x85, 0x46}

const (
	argonSize = 32
	saltSize  = 16
)

// cost are the parameters of a hash. They are stored with the hash, so that they can change for new
// passwords.
type cost struct {
	memory  uint32 // KiB
	passes  uint32
	threads uint8
}

// normalCost is 19 MiB and two passes over them.
var normalCost = cost{memory: 19 << 10, passes: 2, threads: 1}

// The bounds of a password; a pre-hash can't be checked.
const (
	minPassword = 8
	maxPassword = 1024
)

// checkNewPassword refuses a password that is too easy to guess.
func checkNewPassword(password string) error {
	switch n := utf8.RuneCountInString(password); {
	case n < minPassword:
		return weir.Errorf(weir.Invalid, "the password has %d characters; use at least %d", n, minPassword)
	case len(password) > maxPassword:
		return weir.Errorf(weir.Invalid, "the password is too long; use at most %d characters", maxPassword)
	case strings.TrimSpace(password) == "":
		return weir.Errorf(weir.Invalid, "the password is blank")
	}
	return nil
}

// preHash returns the pre-hash of a password, or the password itself when it is one.
func preHash(password string) (string, error) {
	if len(password) == 2*preHashSize {
		if _, err := hex.DecodeString(password); err == nil {
			return strings.ToUpper(password), nil
		}
	}
	sum, err := pbkdf2.Key(sha256.New, password, preHashSalt, preHashRounds, preHashSize)
	return strings.ToUpper(hex.EncodeToString(sum)), err
}

// hasher hashes a few passwords at a time: each takes memory and a core, and unauthenticated
// clients can request it.
type hasher struct {
	running chan struct{}
	waiting chan struct{}
	cost    cost         // of new passwords
	spent   atomic.Int64 // memory × passes of all hashes so far
}

// maxWaiting is how many hashes may wait, for each that runs.
const maxWaiting = 32

func newHasher(atOnce int) *hasher {
	return &hasher{running: make(chan struct{}, atOnce), waiting: make(chan struct{}, atOnce*(maxWaiting+1)), cost: normalCost}
}

// run runs work when there is a free slot.
func (h *hasher) run(ctx context.Context, compute func() error) error {
	select {
	case h.waiting <- struct{}{}:
		defer func() { <-h.waiting }()
	default:
		return weir.TooMany(5*time.Second, "too many people are logging in at this moment; try again in a few seconds")
	}
	select {
	case h.running <- struct{}{}:
		defer func() { <-h.running }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return compute()
}

// hash returns the hash of a password.
func (h *hasher) hash(ctx context.Context, password string) (stored string, err error) {
	err = h.run(ctx, func() error {
		pre, err := preHash(password)
		if err != nil {
			return err
		}
		salt := make([]byte, saltSize)
		_, _ = rand.Read(salt)
		stored = h.cost.encode(salt, h.argon(h.cost, pre, salt))
		return nil
	})
	return stored, err
}

// matches reports whether a stored hash is that of the password. An empty hash takes as long as a
// wrong password.
func (h *hasher) matches(ctx context.Context, stored, password string) (ok bool, err error) {
	err = h.run(ctx, func() error {
		pre, err := preHash(password)
		if err != nil {
			return err
		}
		if stored == "" {
			h.argon(h.cost, pre, make([]byte, saltSize))
			return nil
		}
		c, salt, want, err := decode(stored)
		if err != nil {
			return err
		}
		ok = subtle.ConstantTimeCompare(h.argon(c, pre, salt), want) == 1
		return nil
	})
	return ok, err
}

func (h *hasher) argon(c cost, pre string, salt []byte) []byte {
	h.spent.Add(int64(c.memory) * int64(c.passes))
	return argon2.IDKey([]byte(pre), salt, c.passes, c.memory, c.threads, argonSize)
}

// encode returns a hash in the standard text form.
func (c cost) encode(salt, sum []byte) string {
	b64 := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, c.memory, c.passes, c.threads, b64(salt), b64(sum))
}

func decode(stored string) (c cost, salt, sum []byte, err error) {
	parts := strings.Split(stored, "$")
	if len(parts) == 6 && parts[1] == "argon2id" && parts[2] == fmt.Sprintf("v=%d", argon2.Version) {
		_, err1 := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &c.memory, &c.passes, &c.threads)
		salt, err2 := base64.RawStdEncoding.DecodeString(parts[4])
		sum, err3 := base64.RawStdEncoding.DecodeString(parts[5])
		if err1 == nil && err2 == nil && err3 == nil && len(sum) == argonSize && c.passes > 0 && c.threads > 0 {
			return c, salt, sum, nil
		}
	}
	return c, nil, nil, errors.New("the stored password is not an argon2id hash")
}
