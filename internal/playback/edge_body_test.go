package playback

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"testing"
	"time"
)

// Viewers read a file while it arrives, from any place.
func TestArriving(t *testing.T) {
	t.Parallel()
	all := bytes.Repeat([]byte("0123456789"), 10)
	from, to := io.Pipe()
	a := newArriving(int64(len(all)))
	received := make(chan error)
	go func() { received <- a.receive(from) }()
	send := func(part []byte) {
		t.Helper()
		if _, err := to.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	send(all[:30])
	early, late := a.reader(t.Context()), a.reader(t.Context())
	first := make([]byte, 30)
	if _, err := io.ReadFull(early, first); err != nil || !bytes.Equal(first, all[:30]) {
		t.Fatalf("the first bytes are %q, %v", first, err)
	}
	if end, err := late.Seek(0, io.SeekEnd); end != 100 || err != nil {
		t.Errorf("the file ends at %d, %v", end, err)
	}
	if _, err := late.Seek(90, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	last := make(chan []byte)
	go func() {
		data, _ := io.ReadAll(late)
		last <- data
	}()
	send(all[30:80])
	send(all[80:])
	if data := <-last; !bytes.Equal(data, all[90:]) {
		t.Errorf("the last bytes are %q", data)
	}
	if rest, err := io.ReadAll(early); err != nil || !bytes.Equal(rest, all[30:]) {
		t.Errorf("the rest is %q, %v", rest, err)
	}
	if err := <-received; err != nil {
		t.Error(err)
	}
}

// A file that breaks off is an error for those who read it, after what there is; who leaves does not wait.
func TestArrivingBreaksOff(t *testing.T) {
	t.Parallel()
	a := newArriving(10)
	left, leave := context.WithCancel(t.Context())
	leave()
	if _, err := a.reader(left).Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("who has left gets %v", err)
	}
	if err := a.receive(bytes.NewReader([]byte("abc"))); !errors.Is(err, io.EOF) {
		t.Errorf("the node: %v", err)
	}
	if data, err := io.ReadAll(a.reader(t.Context())); string(data) != "abc" || !errors.Is(err, errNoResponse) {
		t.Errorf("a viewer gets %q, %v", data, err)
	}
}

// A node that refuses connections is asked again after a moment only, however many viewers try again.
func TestUnreachableNode(t *testing.T) {
	t.Parallel()
	e := &edge{unreachable: map[string]time.Time{}}
	_, refused := net.Dial("tcp", "127.0.0.1:1") // a port that nobody has
	e.noteUnreachable("http://a", &url.Error{Op: "Get", URL: "http://a", Err: refused})
	e.noteUnreachable("http://b", context.DeadlineExceeded)
	if !e.isUnreachable("http://a") || e.isUnreachable("http://b") {
		t.Errorf("the nodes that can't be reached: %v", e.unreachable)
	}
	e.unreachable["http://a"] = time.Now().Add(-retryEvery)
	if e.isUnreachable("http://a") {
		t.Error("the node is not asked again")
	}
}
