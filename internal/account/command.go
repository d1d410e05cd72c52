package account

import (
	"time"

	"weir/internal/weir"
)

// commandTokenLife is how long an access token of a command is valid.
const commandTokenLife = 10 * time.Minute

// CommandToken returns an access token with which a command on the machine of the service uses the API in
// the name of a user. Whoever can read the database and the master secret can make one.
func (a *Accounts) CommandToken(u weir.User) (token weir.Secret, expires time.Time, err error) {
	if err := notSuspended(u); err != nil {
		return "", time.Time{}, err
	}
	now := a.now()
	expires = now.Add(commandTokenLife)
	token, err = a.accessToken(u, "", now, commandTokenLife)
	return token, expires, err
}
