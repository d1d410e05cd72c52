package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"weir/internal/account"
	"weir/internal/config"
	"weir/internal/store"
	"weir/internal/weir"
)

// remote has the options of commands that use the API of a running weir.
type remote struct {
	Server string `placeholder:"URL" env:"WEIR_SERVER" help:"The weir to use; default: the one of the settings on this machine. Another one needs --api-key. ($WEIR_SERVER)"`
	User   string `placeholder:"EMAIL" help:"Account to work for, without --api-key, on the machine of the service; default: the first account."`
}

// client sends requests to the API of a weir.
type client struct {
	base string // such as http://localhost:8080
	http *http.Client
	// credential returns the value of the header Authorization.
	credential func(ctx context.Context) (string, error)
}

// responseTimeout is how long the server may take to begin a response, after it has the whole request.
const responseTimeout = 2 * time.Minute

// client returns a client with the API key of the settings, or else with tokens that it makes from the database
// of the service. Such a token goes only to the service of the settings: another server could misuse it.
func (r remote) client(cfg *config.Config) (*client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = responseTimeout
	c := &client{base: strings.TrimRight(cmp.Or(r.Server, cfg.LocalURL(0)), "/"), http: &http.Client{Transport: transport}}
	if u, err := url.Parse(c.base); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil, weir.Errorf(weir.Invalid, "--server: must be the URL of a weir, like https://video.example.com")
	}
	switch {
	case cfg.APIKey != "" && r.User == "":
		c.credential = func(context.Context) (string, error) { return "Bearer " + cfg.APIKey.Reveal(), nil }
	case r.Server != "":
		return nil, weir.Errorf(weir.Invalid, "--server: needs an API key of that weir; set WEIR_API_KEY or give --api-key")
	default:
		c.credential = (&localTokens{cfg: cfg, email: r.User}).credential
	}
	return c, nil
}

// localTokens makes access tokens from the database of the service.
type localTokens struct {
	cfg     *config.Config
	email   string
	token   weir.Secret
	expires time.Time
}

// credential returns a token that is valid for some time.
func (l *localTokens) credential(ctx context.Context) (string, error) {
	if time.Until(l.expires) < 2*time.Minute {
		err := withStore(ctx, l.cfg, func(st *store.Store) error {
			u, err := findUser(ctx, st, l.email)
			if err != nil {
				return err
			}
			accounts, err := account.New(ctx, st, account.Options{})
			if err == nil {
				l.token, l.expires, err = accounts.CommandToken(u)
			}
			return err
		})
		if err != nil {
			return "", fmt.Errorf("%w; or set WEIR_API_KEY to an API key", err)
		}
	}
	return "JWT " + l.token.Reveal(), nil
}

// own returns an address of the server as this client reaches it: the server may know itself under another name.
func (c *client) own(address string) (string, error) {
	_, path, ok := strings.Cut(address, "/api/")
	if !ok {
		return "", errors.New("the server sent a URL that is not of its API")
	}
	return c.base + "/api/" + path, nil
}

// call sends a request with a JSON body, nil = none, and reads the response into v, nil = it is not wanted.
func (c *client) call(ctx context.Context, method, path string, body, v any) error {
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, sent)
	if err != nil {
		return err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.send(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if v == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(v)
}

// send sends a request with the credential. Statuses of 400 and more are errors.
func (c *client) send(r *http.Request) (*http.Response, error) {
	credential, err := c.credential(r.Context())
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", credential)
	return c.do(r)
}

// do sends a request as it is.
func (c *client) do(r *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(r)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // without the URL, which may be a credential
		}
		return nil, weir.Wrap(weir.Upstream, err, "no weir answers at %s; start it with weir serve, or name another one with --server", c.base)
	}
	if resp.StatusCode < http.StatusBadRequest {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, responseError(resp)
}

// maxErrorBody is how many bytes of a response are read to find its error.
const maxErrorBody = 64 << 10

// responseError returns the error of a response.
func responseError(resp *http.Response) error {
	var body struct {
		Errors []string `json:"errors"`
	}
	text := resp.Status
	if json.NewDecoder(io.LimitReader(resp.Body, maxErrorBody)).Decode(&body) == nil && len(body.Errors) > 0 {
		text = strings.Join(body.Errors, "; ")
	}
	return weir.Errorf(weir.KindOfStatus(resp.StatusCode), "the server answers: %s", text)
}
