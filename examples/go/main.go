// Command go creates a stream, waits for an encoder to go live and to stop, and lists the assets
// of the account. It needs nothing but the standard library.
//
//	KEY=… go run ./examples/go
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c := client{base: cmp.Or(os.Getenv("WEIR"), "http://localhost:8080"), key: os.Getenv("KEY")}
	if err := run(ctx, c); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, c client) error {
	// Listen before anything can happen, so that no event is missed.
	events, err := c.request(ctx, http.MethodGet, "/api/events", nil)
	if err != nil {
		return err
	}
	defer events.Close()

	var stream struct{ ID, StreamKey, PlaybackID string }
	if err := c.call(ctx, http.MethodPost, "/api/stream", map[string]any{"name": "from Go", "profiles": []any{}}, &stream); err != nil {
		return err
	}
	fmt.Printf("send to   rtmp://HOST/live/%s\nwatch at  %s/play/%s\n", stream.StreamKey, c.base, stream.PlaybackID)

	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, found := strings.CutPrefix(lines.Text(), "data: ")
		if !found {
			continue // the id and the name of the event, or a comment that keeps the connection open
		}
		var event struct {
			Event  string
			Stream struct{ ID string }
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return err
		}
		if event.Stream.ID != stream.ID {
			continue // of something else in the account
		}
		fmt.Println("event    ", event.Event)
		if event.Event == "stream.idle" {
			break
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}

	var assets []struct {
		ID, Name string
		Status   struct{ Phase string }
	}
	if err := c.call(ctx, http.MethodGet, "/api/asset?limit=10", nil, &assets); err != nil {
		return err
	}
	for _, asset := range assets {
		fmt.Println("asset    ", asset.ID, asset.Status.Phase, asset.Name)
	}
	return c.call(ctx, http.MethodDelete, "/api/stream/"+stream.ID, nil, nil)
}

// client calls weir.
type client struct{ base, key string }

// request sends a request and returns the body of the answer.
func (c client) request(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, &content)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.key)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode < 300 {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	var failed struct{ Errors []string } // the last one is a sentence
	_ = json.NewDecoder(answer.Body).Decode(&failed)
	return nil, fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, strings.Join(failed.Errors, "; "))
}

// call sends a request and reads the answer into v, if there is one.
func (c client) call(ctx context.Context, method, path string, body, v any) error {
	answer, err := c.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer answer.Close()
	if v == nil {
		return nil
	}
	return json.NewDecoder(answer).Decode(v)
}
