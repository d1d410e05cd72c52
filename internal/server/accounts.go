package server

import (
	"context"
	"crypto/rand"
	"fmt"

	"weir/internal/account"
	"weir/internal/ucan"
)

// openAccounts makes the identity of the service and the accounts. At the first start it makes the
// first account.
func (s *server) openAccounts(ctx context.Context) error {
	seed, err := s.store.NamedSecret(ctx, "did", func() ([]byte, error) {
		seed := make([]byte, 32)
		_, err := rand.Read(seed)
		return seed, err
	})
	if err != nil {
		return err
	}
	s.identity = ucan.NewIdentity([32]byte(seed))
	s.did = s.identity.DID()
	s.accounts, err = account.New(ctx, s.store, account.Options{
		Signup: s.cfg.Signup, TrustedProxies: s.cfg.TrustedProxies, PublicURL: s.cfg.PublicURL,
		Log: s.logger("account"),
	})
	if err != nil {
		return err
	}
	s.first, s.firstStart, err = s.accounts.CreateFirst(ctx, s.cfg.APIKey)
	return err
}

// greet prints the addresses of the service. It prints the API key and the set-password link only at
// the first start: weir does not know them later. A key of the settings is not printed: the output
// may be kept where others read it.
func (s *server) greet(base string) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(s.o.Greeting, format+"\n", args...) }
	newKey := s.firstStart && s.cfg.APIKey == ""
	line("")
	line("  weir serves at %s", base)
	line("")
	line("  console       %s/", base)
	if s.firstStart {
		line("  set password  %s%s  (works once)", base, account.LinkPath(s.first.LinkToken))
	}
	if newKey {
		line("  API key       %s  (shown only now)", s.first.Key.Reveal())
	}
	line("  DID           %s", s.did)
	line("")
	if addresses := s.cfg.IngestAddresses(base, "STREAM-KEY"); len(addresses) > 0 {
		line("  Send live streams to one of these:")
		for _, a := range addresses {
			line("  %-12s  %s", a.Protocol, a.URL)
		}
		line("  A new stream:  weir stream create NAME")
		line("")
	}
	switch {
	case newKey:
		line("  Try it:  curl -H 'Authorization: Bearer %s' %s/api/stream", s.first.Key.Reveal(), base)
	case s.cfg.APIKey != "":
		line("  Try it:  curl -H \"Authorization: Bearer $WEIR_API_KEY\" %s/api/stream", base)
	default:
		line("  A new API key:  weir key create NAME")
	}
	line("")
}
