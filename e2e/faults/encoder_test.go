package faults

import (
	"bufio"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/e2e/harness"
)

// filmSeconds is how long the film of the encoders is, which they repeat.
const filmSeconds = 60

// film are 25 numbered frames a second, and a key frame every two seconds.
func film(t *testing.T) *harness.Film {
	return harness.MakeFilm(t, harness.FilmKind{FPS: 25, Key: 2, Seconds: filmSeconds})
}

// encoder sends a film to a stream. When it loses its connection, it goes to the next node, as one behind a
// balancer or with several addresses does.
type encoder struct {
	t     *testing.T
	film  string
	key   string
	nodes []string // addresses, in the order in which they are tried

	mu      sync.Mutex
	runs    []*run
	stopped bool
	at      int // of nodes
	done    chan struct{}
}

// run is one connection.
type run struct {
	cmd    *exec.Cmd
	began  time.Time
	frames atomic.Int64
	said   *harness.LockedBuffer
}

func (e *encoder) start() {
	e.done = make(chan struct{})
	go func() {
		defer close(e.done)
		for e.once() {
			time.Sleep(time.Second) // as encoders do before they come back
		}
	}()
	e.t.Cleanup(e.stop)
}

// once sends until the connection is lost, and reports whether it is to go on.
func (e *encoder) once() (again bool) {
	c := &run{began: time.Now(), said: &harness.LockedBuffer{}}
	e.mu.Lock()
	if e.stopped {
		e.mu.Unlock()
		return false
	}
	c.cmd = exec.Command("ffmpeg", "-hide_banner", "-nostdin", "-v", "error", "-xerror", "-progress", "pipe:1", "-stats_period", "0.1",
		"-re", "-stream_loop", "-1", "-i", e.film, "-c", "copy", "-f", "flv", "rtmp://"+e.nodes[e.at%len(e.nodes)]+"/live/"+e.key)
	c.cmd.Stderr = c.said
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		e.mu.Unlock()
		e.t.Error(err)
		return false
	}
	e.runs = append(e.runs, c)
	e.mu.Unlock()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "frame="); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			c.frames.Store(n)
		}
	}
	_ = c.cmd.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at++
	return !e.stopped
}

// leave lets the encoder give its connection up, and go to the next node.
func (e *encoder) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.runs[len(e.runs)-1].cmd.Process.Kill()
}

// stop lets it say goodbye.
func (e *encoder) stop() {
	e.mu.Lock()
	if !e.stopped {
		e.stopped = true
		if len(e.runs) > 0 {
			_ = e.runs[len(e.runs)-1].cmd.Process.Signal(syscall.SIGINT)
		}
	}
	e.mu.Unlock()
	<-e.done
}

// connections returns those that sent something.
func (e *encoder) connections() (list []*run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.runs {
		if c.frames.Load() > 0 {
			list = append(list, c)
		}
	}
	return list
}

// String tells how it went.
func (e *encoder) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var text []string
	for _, c := range e.runs {
		text = append(text, fmt.Sprintf("%d frames from %s: %s", c.frames.Load(), c.began.Format("15:04:05.0"), strings.TrimSpace(c.said.String())))
	}
	return strings.Join(text, "; ")
}

// missing compares numbers of frames, in order, with what the connections sent. It returns how many are
// missing in the middle, how many at the ends of connections, and how many came twice or in the wrong
// order. from is the number of the first frame that is expected.
func missing(numbers []int, sent []*run, from int) (middle, ends, wrong int) {
	const film, far, slack = 25 * filmSeconds, 25 * filmSeconds / 3, 5
	connection, position := 0, from // of the next frame; the position counts over the repeats of the film
	for _, n := range numbers {
		last := connection+1 >= len(sent)
		ahead := (n - position%film + film) % film
		left := 0
		if !last {
			left = max(0, int(sent[connection].frames.Load())-position)
		}
		switch {
		case ahead <= far && (last || ahead <= left+slack):
			middle += ahead
			position += ahead + 1
		case !last && n <= far:
			ends += left + n
			connection, position = connection+1, n+1
		default:
			wrong++
		}
	}
	for i := connection; i < len(sent); i++ {
		ends += max(0, int(sent[i].frames.Load())-position)
		position = 0
	}
	return middle, ends, wrong
}

// TestMissing looks whether what is missing is found.
func TestMissing(t *testing.T) {
	numbers := func(ranges ...int) (list []int) {
		for i := 0; i < len(ranges); i += 2 {
			for n := ranges[i]; n < ranges[i+1]; n++ {
				list = append(list, n%(25*filmSeconds))
			}
		}
		return list
	}
	sent := func(frames ...int64) (list []*run) {
		for _, n := range frames {
			c := &run{}
			c.frames.Store(n)
			list = append(list, c)
		}
		return list
	}
	for _, tt := range []struct {
		name                string
		numbers             []int
		sent                []*run
		from                int
		middle, ends, wrong int
	}{
		{"whole", numbers(0, 100), sent(100), 0, 0, 0, 0},
		{"the film is repeated", numbers(0, 6000), sent(6000), 0, 0, 0, 0},
		{"a viewer who came later", numbers(40, 100), sent(100), 40, 0, 0, 0},
		{"a hole", numbers(0, 50, 60, 100), sent(100), 0, 10, 0, 0},
		{"a hole over a repeat", numbers(0, 2490, 2510, 2600), sent(2600), 0, 20, 0, 0},
		{"the end", numbers(0, 90), sent(100), 0, 0, 10, 0},
		{"two connections", numbers(0, 100, 0, 70), sent(100, 70), 0, 0, 0, 0},
		{"the end of the first and the start of the second", numbers(0, 90, 5, 70), sent(100, 70), 0, 0, 15, 0},
		{"nothing of the second", numbers(0, 100), sent(100, 70), 0, 0, 70, 0},
		{"some twice", numbers(0, 60, 50, 100), sent(100), 0, 0, 0, 10},
	} {
		middle, ends, wrong := missing(tt.numbers, tt.sent, tt.from)
		if middle != tt.middle || ends != tt.ends || wrong != tt.wrong {
			t.Errorf("%s: %d in the middle, %d at ends, %d wrong; want %d, %d, %d", tt.name, middle, ends, wrong, tt.middle, tt.ends, tt.wrong)
		}
	}
}
