package account

import (
	"net/http"
)

type asset struct{}

func readAssets() (map[string]asset, error) { return nil, nil }

func newCrossOriginProtection(string) (*http.CrossOriginProtection, error) {
	return http.NewCrossOriginProtection(), nil
}

// Pages returns the account area.
func (a *Accounts) Pages() http.Handler { return http.NotFoundHandler() }
