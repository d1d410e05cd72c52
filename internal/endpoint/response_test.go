package endpoint

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// connection is an http.ResponseWriter that remembers in which order it was called. It has all that
// the one of net/http has.
type connection struct {
	*httptest.ResponseRecorder
	calls []string
	until []time.Time // deadlines
	files int         // number of readers whose bytes are those of a file, which the kernel can copy
}

func newConnection() *connection { return &connection{ResponseRecorder: httptest.NewRecorder()} }

func (c *connection) WriteHeader(status int) {
	c.calls = append(c.calls, "header")
	c.ResponseRecorder.WriteHeader(status)
}

func (c *connection) Write(b []byte) (int, error) {
	c.calls = append(c.calls, "write")
	return c.ResponseRecorder.Write(b)
}

func (c *connection) ReadFrom(r io.Reader) (int64, error) {
	c.calls = append(c.calls, "read from")
	if limited, ok := r.(*io.LimitedReader); ok {
		if _, ok := limited.R.(*os.File); ok {
			c.files++
		}
	}
	return io.Copy(c.Body, r)
}

func (c *connection) FlushError() error {
	c.calls = append(c.calls, "flush")
	return nil
}

func (c *connection) SetWriteDeadline(until time.Time) error {
	c.calls = append(c.calls, "deadline")
	c.until = append(c.until, until)
	return nil
}

func TestResponse(t *testing.T) {
	type result struct {
		Calls  string
		Status int // as recorded, and as sent
		Bytes  int64
		Body   string
	}
	text := func(w http.ResponseWriter, body string) { _, _ = io.WriteString(w, body) }
	for _, tt := range []struct {
		name   string
		w      Response
		handle func(w *Response)
		want   result
	}{
		{"nothing", Response{}, func(*Response) {}, result{"", 200, 0, ""}},
		{"a status", Response{}, func(w *Response) { w.WriteHeader(304) }, result{"header", 304, 0, ""}},
		{"a body", Response{}, func(w *Response) { text(w, "one"); text(w, "two") }, result{"header write write", 200, 6, "onetwo"}},
		{"a status and a body", Response{}, func(w *Response) { w.WriteHeader(404); text(w, "one") }, result{"header write", 404, 3, "one"}},
		{"an error before the first byte", Response{}, func(w *Response) { w.WriteHeader(200); w.WriteHeader(500); text(w, "one") }, result{"header write", 500, 3, "one"}},
		{"an error after it", Response{}, func(w *Response) { text(w, "one"); w.WriteHeader(500) }, result{"header write", 200, 3, "one"}},
		{"with a timeout", Response{Timeout: time.Minute}, func(w *Response) { text(w, "one"); text(w, "two") }, result{"header deadline write deadline write", 200, 6, "onetwo"}},
		{"without a body", Response{Timeout: time.Minute}, func(w *Response) { w.WriteHeader(204) }, result{"header deadline", 204, 0, ""}},
		{"in steps", Response{Timeout: time.Minute, Step: 5}, func(w *Response) {
			for range 4 {
				text(w, "one")
			}
		}, result{"header deadline write write deadline write write", 200, 12, "oneoneoneone"}},
		{"flushed", Response{Timeout: time.Minute}, func(w *Response) {
			w.WriteHeader(202)
			_ = http.NewResponseController(w).Flush()
			text(w, "one")
		}, result{"header deadline flush deadline write", 202, 3, "one"}},
		{"read from", Response{}, func(w *Response) { _, _ = io.Copy(w, strings.NewReader("one")) }, result{"header write", 200, 3, "one"}},
		{"read from, in steps", Response{Timeout: time.Minute, Step: 600}, func(w *Response) {
			_, _ = io.Copy(w, io.LimitReader(strings.NewReader(strings.Repeat("x", 2000)), 1500))
		}, result{"header deadline write read from deadline read from", 200, 1500, strings.Repeat("x", 1500)}},
		{"edited", Response{Edit: func(status int, first []byte) []byte {
			if status != 404 || string(first) != "one" {
				t.Errorf("edited %d %q", status, first)
			}
			return []byte("changed ")
		}}, func(w *Response) { w.WriteHeader(404); text(w, "one"); text(w, "two") }, result{"header write write", 404, 11, "changed two"}},
		{"edited without a body", Response{Edit: func(_ int, first []byte) []byte {
			if first != nil {
				t.Errorf("edited %q", first)
			}
			return nil
		}}, func(w *Response) { w.WriteHeader(204) }, result{"header", 204, 0, ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, w, sent := newConnection(), tt.w, int64(0)
			w.ResponseWriter, w.Sent = c, func(n int64) { sent += n }
			tt.handle(&w)
			w.End()
			got := result{strings.Join(c.calls, " "), w.Status(), w.Bytes(), c.Body.String()}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if c.Code != w.Status() || sent != w.Bytes() || w.Begun() != (got.Calls != "") {
				t.Errorf("status %d was sent, %d recorded; %d bytes were sent, %d recorded; begun %t", c.Code, w.Status(), sent, w.Bytes(), w.Begun())
			}
			for _, until := range c.until {
				if left := time.Until(until); left <= 0 || left > time.Minute {
					t.Errorf("the deadline is in %s", left)
				}
			}
		})
	}
}

// The kernel copies a file to the connection, also in steps and in ranges, except for the first bytes.
func TestResponseSendsFiles(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 1000)
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		asked string
		want  []byte
		files int
	}{
		{"", content, 3},
		{"bytes=1000-7000", content[1000:7001], 2},
		{"bytes=0-9", content[:10], 0},
	} {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		c, r := newConnection(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Range", tt.asked)
		w := &Response{ResponseWriter: c, Timeout: time.Minute, Step: 4096}
		http.ServeContent(w, r, "file.mp4", time.Time{}, file)
		w.End()
		if !bytes.Equal(c.Body.Bytes(), tt.want) || w.Bytes() != int64(len(tt.want)) {
			t.Errorf("%q: %d bytes came, %d recorded, want %d", tt.asked, c.Body.Len(), w.Bytes(), len(tt.want))
		}
		if c.files != tt.files {
			t.Errorf("%q: the connection got the file %d times, want %d: %q", tt.asked, c.files, tt.files, c.calls)
		}
	}
}

// failingReader fails after its bytes.
type failingReader struct {
	bytes io.Reader
	err   error
}

func (f failingReader) Read(b []byte) (int, error) {
	n, err := f.bytes.Read(b)
	if errors.Is(err, io.EOF) {
		err = f.err
	}
	return n, err
}

// A file that can't be read from its start on can still be answered with an error status.
func TestResponseOfUnreadableFile(t *testing.T) {
	planted := errors.New("planted")
	for body, begun := range map[string]bool{"": false, "some": true} {
		c := newConnection()
		w := &Response{ResponseWriter: c, Step: 4096}
		w.WriteHeader(http.StatusOK)
		if _, err := io.Copy(w, failingReader{strings.NewReader(body), planted}); !errors.Is(err, planted) {
			t.Errorf("%q: %v", body, err)
		}
		if w.Begun() != begun || (len(c.calls) > 0) != begun {
			t.Errorf("%q: begun %t, %q", body, w.Begun(), c.calls)
		}
		if err := w.ReadError(); errors.Is(err, planted) == begun {
			t.Errorf("%q: the read error is %v", body, err)
		}
	}
}

// A client that has disconnected ends the copy.
func TestResponseThatIsNotRead(t *testing.T) {
	planted := errors.New("planted")
	for _, step := range []int64{0, 4096} {
		w := &Response{ResponseWriter: brokenConnection{newConnection(), 2, planted}, Step: step}
		n, err := io.Copy(w, strings.NewReader("something"))
		if !errors.Is(err, planted) || n != 2 || w.Bytes() != 2 {
			t.Errorf("step %d: %d bytes, %d recorded, %v", step, n, w.Bytes(), err)
		}
	}
}

// brokenConnection takes some bytes.
type brokenConnection struct {
	http.ResponseWriter
	takes int
	err   error
}

func (c brokenConnection) Write([]byte) (int, error) { return c.takes, c.err }

// The status of a request says whether its client got anything.
func TestResponseToClientThatIsGone(t *testing.T) {
	for _, tt := range []struct {
		name   string
		gone   bool
		handle func(w *Response)
		want   int
	}{
		{"nothing, to a client that is there", false, func(*Response) {}, 200},
		{"nothing", true, func(*Response) {}, StatusClientGone},
		{"a status", true, func(w *Response) { w.WriteHeader(200) }, StatusClientGone},
		{"a body that does not arrive", true, func(w *Response) {
			w.ResponseWriter = brokenConnection{w.ResponseWriter, 0, io.ErrClosedPipe}
			_, _ = io.WriteString(w, "one")
		}, StatusClientGone},
		{"the start of a body", true, func(w *Response) {
			w.ResponseWriter = brokenConnection{w.ResponseWriter, 2, io.ErrClosedPipe}
			_, _ = io.WriteString(w, "one")
		}, 200},
		{"a status that was flushed", true, func(w *Response) {
			w.WriteHeader(202)
			_ = http.NewResponseController(w).Flush()
		}, 202},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
			w := &Response{ResponseWriter: newConnection(), Request: r}
			tt.handle(w)
			if tt.gone {
				leave()
			}
			w.End()
			if got := w.Status(); got != tt.want {
				t.Errorf("status %d, want %d", got, tt.want)
			}
		})
	}
}
