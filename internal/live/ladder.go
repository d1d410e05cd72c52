package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/ffmpeg"
	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/weir"
)

const (
	// measuredFrames is how many frames give the frame rate before a ladder is planned.
	measuredFrames = 9
	// maxBehind is how far a rung may be behind the source. If it is further behind, its ffmpeg is
	// stuck or too slow.
	maxBehind = 6 * time.Second
	// flushTimeout is how long ffmpeg may take to finish after its input has ended.
	flushTimeout = 5 * time.Second
	// unlimitedCPU is the CPU time that an ffmpeg gets: a stream may be on air for years.
	unlimitedCPU = 100_000 * time.Hour
	// maxFrameWait is how long no frame comes before the input checks whether the publisher has
	// disconnected.
	maxFrameWait = time.Second
)

// Why ffmpeg was ended.
var (
	errStuck   = weir.Errorf(weir.Internal, "the encoder of the renditions hung")
	errNoCPU   = weir.Errorf(weir.Busy, "this server has no CPU left to encode another stream")
	errTooSlow = weir.Errorf(weir.Busy, "the renditions could not be encoded in real time")
)

// ladder encodes the rungs of a session from its source, with one ffmpeg at a time. It reads the
// session through a tap, so that its failures do not affect the source.
type ladder struct {
	profiles   []weir.Profile
	rungs      []*rung // one for each profile
	engine     *ffmpeg.Engine
	log        *slog.Logger
	renditions *renditions // of the session
	taps       *taps       // of the session; their lock is the session's
	openTap    func() *Tap
	finished   func() bool // the session is over
	timeline   *timeline
	done       chan struct{}

	// For the goroutine that runs it.
	level   int  // position of the best plan to try
	cheaper bool // there are cheaper plans to try

	mu      sync.Mutex
	climb   climb
	planned []*rung  // that are being encoded; nil = none are
	failed  error    // why none are
	limits  []string // what the plan leaves out, for the owner of the stream
	waiting bool     // there is no plan yet
}

// startLadder encodes the rungs of a session until it is over, and opens those that are on disk;
// nil = the stream has no profiles. It is called before the session is on air.
func (s *session) startLadder(engine *ffmpeg.Engine) (*ladder, error) {
	if len(s.stream.Profiles) == 0 || engine == nil {
		return nil, nil
	}
	l := &ladder{
		profiles: s.stream.Profiles, engine: engine, log: s.log, renditions: &s.renditions, taps: &s.taps, finished: s.finished,
		openTap: func() *Tap { return s.tap(TapOptions{}) }, timeline: newTimeline(), done: make(chan struct{}), waiting: true, climb: newClimb(),
	}
	for _, p := range l.profiles {
		r := &rung{profile: p, ladder: l}
		l.rungs = append(l.rungs, r)
		recorder, err := media.Recover(filepath.Join(l.renditions.dir, p.Name))
		if weir.KindOf(err) == weir.NotFound {
			continue
		}
		if err == nil {
			r.out, err = l.renditions.addRung(p, recorder)
		}
		if err != nil {
			return nil, fmt.Errorf("recover %s of session %s: %w", p.Name, s.info.ID, err)
		}
	}
	tap := l.openTap()
	ctx, cancel := context.WithCancel(context.Background())
	var measuring sync.WaitGroup
	measuring.Go(func() { engine.Measure(ctx) }) // only the first one measures; earlier plans assume a usual speed
	go func() {
		defer close(l.done)
		defer measuring.Wait()
		defer cancel()
		l.run(tap)
	}()
	return l, nil
}

// sourceTimeline returns where the source notes its segments; nil = there is no ladder.
func (l *ladder) sourceTimeline() *timeline {
	if l == nil {
		return nil
	}
	return l.timeline
}

// wait waits until the ladder writes nothing more. Its tap must have ended.
func (l *ladder) wait() {
	if l != nil {
		<-l.done
	}
}

// run encodes rungs until the tap ends.
func (l *ladder) run(tap *Tap) {
	var retry backoff
	for {
		began := time.Now()
		err := l.follow(tap)
		tap.Close()
		if errors.Is(err, errTapEnded) {
			l.conclude()
			return
		}
		if errors.Is(err, errTooSlow) && l.cheaper {
			retry = backoff{}
		}
		pause := retry.next(began)
		l.log.Warn("the encoder of the renditions failed and will be restarted", "err", err, "in", pause)
		l.note(nil, nil, err)
		tap = l.openTap()
		if !l.idle(tap, pause) {
			tap.Close()
			l.conclude()
			return
		}
		tap.Close() // its frames are old by now
		tap = l.openTap()
	}
}

// errEarly means that ffmpeg ended before its input did.
var errEarly = errors.New("the encoder of the renditions exited before the end of its input")

// errTapEnded means that the session is over, or continues on another node.
var errTapEnded = errors.New("the session is over")

// follow encodes the rungs of one publisher after the other, and returns why it ended.
func (l *ladder) follow(tap *Tap) error {
	in := &ladderInput{tap: tap, timeline: l.timeline}
	for {
		if err := in.awaitPublisher(); err != nil {
			return err
		}
		err := l.encode(in)
		for err == nil && in.resume() {
			err = l.encode(in)
		}
		l.note(nil, nil, nil)
		if err != nil {
			return err
		}
	}
}

// encode encodes the rungs of one publisher, until it disconnects.
func (l *ladder) encode(in *ladderInput) error {
	plans := ladderPlans(l.profiles, in.track, in.rate)
	best := min(l.level, max(len(plans)-1, 0))
	var offers []int
	for _, p := range plans[best:] {
		offers = append(offers, p.encode.Cost())
	}
	chosen, release := l.engine.Reserve(offers)
	defer release()
	switch {
	case len(plans) == 0: // the source is smaller than all rungs
		l.note(nil, nil, nil)
		return in.skip(func() { l.fillGaps(l.rungs) })
	case chosen < 0:
		return errNoCPU
	}
	chosen += best
	plan, better := plans[chosen], 0
	if chosen > 0 {
		better = plans[chosen-1].encode.Cost() - plan.encode.Cost()
	}
	var rungs []*rung
	for _, i := range plan.rungs {
		rungs = append(rungs, l.rungs[i])
	}
	l.note(rungs, plan.issues, nil)
	l.log.Info("encoding of the renditions started", "rungs", len(rungs), "preset", plan.encode.Rungs[0].Preset, "rate", in.rate)
	l.mu.Lock()
	l.climb.setPlan(better, time.Now())
	l.mu.Unlock()
	err := l.runPlan(in, plan, rungs)
	switch {
	case errors.Is(err, errTooSlow):
		l.level, l.cheaper = chosen+1, chosen+1 < len(plans)
		l.mu.Lock()
		l.climb.fellBehind()
		l.mu.Unlock()
	case err == nil && in.divided.Load() != undivided:
		l.level = chosen - 1
	}
	return err
}

// runPlan runs ffmpeg until the publisher disconnects or ffmpeg fails.
func (l *ladder) runPlan(in *ladderInput, plan ladderPlan, rungs []*rung) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	group, ctx := errgroup.WithContext(ctx)
	command := ffmpeg.Command{
		Args: plan.encode.Args(), Stdin: in, Priority: ffmpeg.Live, Reserved: true, Threads: plan.encode.Threads(),
		Pixels: plan.encode.Pixels(), Stall: 2 * maxBehind, CPU: unlimitedCPU,
	}
	var writers []*io.PipeWriter
	for i, r := range rungs {
		rate := plan.encode.Rungs[i].FrameRate(plan.encode)
		reader, writer := io.Pipe()
		writers, command.Outputs = append(writers, writer), append(command.Outputs, writer)
		group.Go(func() error {
			err := r.read(ctx, in, rate, reader)
			reader.CloseWithError(err)
			return err
		})
	}
	var watching sync.WaitGroup
	ended := make(chan struct{})
	watching.Go(func() { l.watch(in, rungs, ended, cancel) })
	runErr := l.engine.Run(ctx, command)
	close(ended)
	for _, w := range writers {
		w.CloseWithError(runErr)
	}
	err := group.Wait()
	watching.Wait()
	switch {
	case runErr != nil:
		return runErr
	case err != nil:
		return err
	case !in.drained.Load():
		return errEarly
	}
	return in.ended
}

// watch ends an ffmpeg that is stuck or too slow, or that does not end after its input. It fills the
// rungs that the plan leaves out with gaps.
func (l *ladder) watch(in *ladderInput, rungs []*rung, ended <-chan struct{}, abort context.CancelCauseFunc) {
	tick := time.NewTicker(maxBehind / 20)
	defer tick.Stop()
	for _, r := range rungs {
		r.newest.Store(int64(in.first))
	}
	leftOut := slices.DeleteFunc(slices.Clone(l.rungs), func(r *rung) bool { return slices.Contains(rungs, r) })
	var drained, advanced time.Time
	before := time.Duration(-1)
	for {
		select {
		case <-ended:
			return
		case now := <-tick.C:
			l.fillGaps(leftOut)
			newest := slowest(rungs)
			if newest != before {
				before, advanced = newest, now
			}
			if l.climbs(l.behind(newest), now) {
				in.divide.Store(true)
			}
			switch {
			case in.drained.Load():
				if drained.IsZero() {
					drained = now
				}
				if now.Sub(drained) > flushTimeout {
					abort(errStuck)
					return
				}
			case l.behind(newest) <= maxBehind:
			case now.Sub(advanced) > maxBehind/2:
				abort(errStuck)
				return
			default:
				abort(errTooSlow)
				return
			}
		}
	}
}

// climbs reports whether to try the next better plan.
func (l *ladder) climbs(behind time.Duration, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.climb.due(behind, now, func(cost int) bool {
		chosen, release := l.engine.Reserve([]int{cost})
		release()
		return chosen >= 0
	})
}

// slowest returns how far the slowest rung is.
func slowest(rungs []*rung) time.Duration {
	newest := rungs[0].newest.Load()
	for _, r := range rungs[1:] {
		newest = min(newest, r.newest.Load())
	}
	return time.Duration(newest)
}

// behind returns how far a time is behind the source.
func (l *ladder) behind(at time.Duration) time.Duration {
	settled, _ := l.timeline.now()
	return max(settled-at, 0)
}

// idle waits, and fills the rungs with gaps meanwhile. It reports whether the session continues.
func (l *ladder) idle(tap *Tap, pause time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), pause)
	defer cancel()
	for {
		l.fillGaps(l.rungs)
		_, err := tap.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return true
		case err != nil:
			return false
		}
	}
}

// fillGaps fills rungs that are not encoded with gaps, up to the newest segment of the source.
func (l *ladder) fillGaps(rungs []*rung) {
	for _, r := range rungs {
		if r.out == nil {
			continue
		}
		// This is called often. That the disk is full is logged elsewhere.
		if err := r.fill(l.renditions.sourceVideo().recorder.Next()); err != nil && weir.KindOf(err) != weir.Full {
			l.log.Warn("a gap in a rendition could not be written", "err", err)
		}
	}
}

// conclude ends the playlists of the rungs if the session is over.
func (l *ladder) conclude() {
	l.note(nil, nil, nil)
	if !l.finished() {
		return
	}
	l.fillGaps(l.rungs)
	for _, r := range l.rungs {
		if r.out != nil {
			r.out.conclude()
		}
	}
}

// note sets what is being encoded.
func (l *ladder) note(rungs []*rung, issues []string, failed error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.planned, l.limits, l.failed, l.waiting = rungs, issues, failed, false
}

// expected returns the names of the rungs that are being encoded, or will be in a moment.
func (l *ladder) expected() []string {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	rungs := l.planned
	if l.waiting {
		rungs = l.rungs
	}
	var names []string
	for _, r := range rungs {
		names = append(names, r.profile.Name)
	}
	return names
}

// issues returns what is wrong with the ladder.
func (l *ladder) issues() []string {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	issues := slices.Clone(l.limits)
	switch why, known := errors.AsType[*weir.Error](l.failed); {
	case l.failed == nil:
	case known && (why == errStuck || why == errTooSlow || why == errNoCPU):
		issues = append(issues, "the renditions are missing: "+why.Error())
	default: // the messages of ffmpeg are for the log
		issues = append(issues, "the renditions are missing: their encoder failed and is being restarted")
	}
	return issues
}

// rung returns the rung of a name; nil = there is none.
func (l *ladder) rung(name string) *rung {
	if l == nil {
		return nil
	}
	i := slices.IndexFunc(l.rungs, func(r *rung) bool { return r.profile.Name == name })
	if i < 0 {
		return nil
	}
	return l.rungs[i]
}

// lag returns how far the slowest rung is behind the source.
func (l *ladder) lag() time.Duration {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	rungs := l.planned
	l.mu.Unlock()
	if len(rungs) == 0 {
		return 0
	}
	return l.behind(slowest(rungs))
}

// count adds what was encoded since the session was opened here. The duration is that of the longest
// rung, however many rungs there are, and at most that of the source, which counts whole segments only.
func (l *ladder) count(b *store.Beat) {
	if l == nil {
		return
	}
	c, longest := &b.Counters, time.Duration(0)
	for _, r := range l.rungs {
		c.TranscodedSegments += r.segments.Load()
		c.TranscodedBytes += r.bytes.Load()
		longest = max(longest, time.Duration(r.nanoseconds.Load()))
	}
	c.TranscodedSegmentsDuration = min(c.TranscodedSegmentsDuration+longest.Seconds(), c.SourceSegmentsDuration)
}
