package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"weir/internal/config"
	"weir/internal/server"
	"weir/internal/webhook"
	"weir/internal/weir"
)

type webhookCmd struct {
	Listen webhookListenCmd `cmd:"" help:"Print events as they happen, and send them to a local address."`
}

// webhookListenCmd is `weir webhook listen`.
type webhookListenCmd struct {
	Forward string      `placeholder:"URL" help:"Send every event to this address as well, as a webhook does."`
	Events  []string    `placeholder:"NAME" help:"Only these events, such as asset.ready,stream.started; default: all."`
	Secret  weir.Secret `placeholder:"TEXT" env:"WEIR_WEBHOOK_SECRET" help:"What the events that are sent are signed with; default: a new one, which is printed. ($WEIR_WEBHOOK_SECRET)"`
	JSON    bool        `name:"json" help:"Write each event as one line of JSON."`
	remote
}

// Help is what `weir webhook listen --help` shows below the usage.
func (webhookListenCmd) Help() string {
	return `Prints the events of an account from now on, one a line: time, name, id, and what it is about. It needs no webhook
and no address that the server can reach, so it suits the machine of a developer.

Example:
  weir webhook listen --events asset.ready,asset.failed --forward http://localhost:3000/hook

With --forward, each event is posted to the address with the body and the headers of a webhook, one after the other,
and the status of the response is printed. An event that fails is not sent again. When the connection to the server is
lost, the command connects again and continues after the last event.

Exit codes: 0 ended by Ctrl-C, 1 it failed and may work later, 2 the request is wrong.`
}

func (c webhookListenCmd) Run(ctx context.Context, cfg *config.Config) error {
	l, err := c.listener(cfg)
	if err == nil {
		err = l.run(ctx)
	}
	if err == nil || ctx.Err() != nil {
		return nil
	}
	e := &exitError{error: err, status: 1}
	if !weir.Retriable(err) {
		e.status = exitInvalid
	}
	return e
}

// listener follows the events of a weir.
type listener struct {
	api     *client
	out     io.Writer // events
	notes   io.Writer // everything else
	json    bool
	names   []string // nil = all events
	forward string   // "" = events are only printed
	hook    *weir.Webhook
	version string
	cursor  string // of the last event; "" = none yet

	newSecret bool // that of the hook was made now, so it has to be printed
	greeted   bool
}

func (c webhookListenCmd) listener(cfg *config.Config) (*listener, error) {
	if c.Forward != "" {
		if u, err := url.Parse(c.Forward); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, weir.Errorf(weir.Invalid, "--forward: must be a URL, like http://localhost:3000/hook")
		}
	}
	for _, name := range c.Events {
		if !slices.Contains(weir.EventNames(), weir.EventName(name)) {
			return nil, weir.Errorf(weir.Invalid, "--events: there is no event %q; there are %s", name, joined(weir.EventNames()))
		}
	}
	api, err := c.client(cfg)
	if err != nil {
		return nil, err
	}
	l := &listener{
		api: api, out: os.Stdout, notes: os.Stderr, json: c.JSON, names: c.Events, forward: c.Forward,
		hook: &weir.Webhook{ID: "listen", SharedSecret: c.Secret}, version: server.ReadVersion().Tag,
	}
	if c.Forward != "" && c.Secret == "" {
		l.hook.SharedSecret, l.newSecret = weir.Secret(weir.NewToken()), true
	}
	return l, nil
}

// greet tells that events are printed from now on.
func (l *listener) greet() error {
	note := fmt.Sprintf("Listening to %s. Ctrl-C ends.\n", l.api.base)
	if l.newSecret {
		note += fmt.Sprintf("Events are signed with the secret %s\n", l.hook.SharedSecret.Reveal())
	}
	return show(l.notes, "%s", note)
}

const (
	// silence is how long the server may say nothing. It sends a comment every 15 seconds.
	silence = 45 * time.Second
	// The delay before the first attempt to connect again, and the longest.
	firstListenDelay = 500 * time.Millisecond
	lastListenDelay  = 10 * time.Second
	// maxEventLine bounds the memory for an event.
	maxEventLine = 16 << 20
	// forwardTimeout is how long a receiver may take to respond, as for webhooks.
	forwardTimeout = 30 * time.Second
)

// run follows the events until ctx ends. A first attempt that fails is final.
func (l *listener) run(ctx context.Context) error {
	delay := firstListenDelay
	for {
		begun := time.Now()
		err := l.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		switch {
		case err != nil && weir.KindOf(err) == weir.Gone:
			l.cursor = ""
			if err := show(l.notes, "Some events were missed: the server does not keep them any more.\n"); err != nil {
				return err
			}
		case err != nil && (!l.greeted || !weir.Retriable(err)):
			return err
		}
		if time.Since(begun) > silence {
			delay = firstListenDelay
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay):
		}
		delay = min(2*delay, lastListenDelay)
	}
}

// follow connects once and handles events until the connection ends, which is not an error.
func (l *listener) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.api.base+"/api/events", nil)
	if err != nil {
		return err
	}
	if l.cursor != "" {
		r.Header.Set("Last-Event-ID", l.cursor)
	}
	resp, err := l.api.send(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if l.cursor == "" {
		l.cursor = resp.Header.Get("Last-Event-ID")
	}
	if !l.greeted {
		if err := l.greet(); err != nil {
			return err
		}
		l.greeted = true
	}
	quiet := time.AfterFunc(silence, cancel)
	defer quiet.Stop()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxEventLine)
	var id, data string
	for lines.Scan() {
		quiet.Reset(silence)
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			id = value
		case "data":
			data = value
		case "":
			if lines.Text() == "" && data != "" {
				if err := l.handle(ctx, []byte(data)); err != nil {
					return err
				}
				l.cursor, data = id, ""
				quiet.Reset(silence)
			}
		}
	}
	return nil
}

// handle prints an event and sends it on.
func (l *listener) handle(ctx context.Context, data []byte) error {
	var e weir.Event
	if err := json.Unmarshal(data, &e); err != nil {
		return weir.Wrap(weir.Upstream, err, "the server sent an event that can't be read")
	}
	if len(l.names) > 0 && !slices.Contains(l.names, string(e.Name)) {
		return nil
	}
	text := string(data)
	if !l.json {
		text = fmt.Sprintf("%s  %-24s  %s  %s", e.CreatedAt.Time().Local().Format(time.TimeOnly), e.Name, e.ID, aboutEvent(e))
	}
	if err := show(l.out, "%s\n", text); err != nil || l.forward == "" {
		return err
	}
	return show(l.notes, "          -> %s\n", l.send(ctx, e))
}

// send posts an event to the receiver and returns what became of it.
func (l *listener) send(ctx context.Context, e weir.Event) string {
	begun := time.Now()
	body, header, err := webhook.Message(e, l.hook, l.version, begun)
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.forward, bytes.NewReader(body))
	if err != nil {
		return err.Error()
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	receiver := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := receiver.Do(r)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return err.Error()
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxErrorBody))
	_ = resp.Body.Close()
	return fmt.Sprintf("%s, %d ms", resp.Status, time.Since(begun).Milliseconds())
}

// aboutEvent returns in a few words what an event is about: the kind, the id and the name of each thing it names.
func aboutEvent(e weir.Event) string {
	var things map[string]json.RawMessage
	if json.Unmarshal(e.Payload, &things) != nil {
		things = map[string]json.RawMessage{}
	}
	if len(e.Stream) > 0 {
		things["stream"] = e.Stream
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(things)) {
		var thing struct {
			ID       string `json:"id"`
			Name     string `json:"name"`
			Snapshot struct {
				Name string `json:"name"`
				Type string `json:"type"`
			} `json:"snapshot"`
		}
		if json.Unmarshal(things[kind], &thing) != nil || thing.ID == "" {
			continue
		}
		part := kind + " " + thing.ID
		for _, name := range []string{thing.Name, thing.Snapshot.Name} {
			if name != "" {
				part += fmt.Sprintf(" %q", weir.Shorten(name, 60))
			}
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}
