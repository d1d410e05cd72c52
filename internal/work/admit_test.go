package work

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/store"
	"weir/internal/store/storetest"
	"weir/internal/weir"
)

func TestNextTask(t *testing.T) {
	account := func(user string, running int, last int64) store.WaitingAccount {
		return store.WaitingAccount{UserID: user, TaskID: "of " + user, Running: running, LastAdmitted: last}
	}
	for name, tt := range map[string]struct {
		waiting []store.WaitingAccount
		limit   int
		want    string // user
	}{
		"nobody waits":                         {nil, 5, ""},
		"the only one":                         {[]store.WaitingAccount{account("ann", 0, 0)}, 5, "ann"},
		"the one that was admitted long ago":   {[]store.WaitingAccount{account("ann", 0, 7), account("bob", 0, 3), account("eve", 0, 5)}, 5, "bob"},
		"whatever it has running":              {[]store.WaitingAccount{account("ann", 0, 7), account("bob", 4, 3)}, 5, "bob"},
		"a new one before all others":          {[]store.WaitingAccount{account("ann", 0, 1), account("bob", 0, 0)}, 5, "bob"},
		"new ones by their ids":                {[]store.WaitingAccount{account("eve", 0, 0), account("bob", 0, 0)}, 5, "bob"},
		"not one that has as many as it may":   {[]store.WaitingAccount{account("ann", 5, 3), account("bob", 0, 7)}, 5, "bob"},
		"all have as many as they may":         {[]store.WaitingAccount{account("ann", 5, 3), account("bob", 6, 7)}, 5, ""},
		"only idle ones while many tasks run":  {[]store.WaitingAccount{account("ann", 1, 3), account("bob", 0, 7)}, 1, "bob"},
		"the order of the rows has no meaning": {[]store.WaitingAccount{account("bob", 0, 3), account("ann", 0, 7)}, 5, "bob"},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := nextTask(tt.waiting, tt.limit)
			if got.UserID != tt.want || ok != (tt.want != "") || ok && got.TaskID != "of "+tt.want {
				t.Errorf("next is %+v, %v; want that of %q", got, ok, tt.want)
			}
		})
	}
}

func TestMaxPerAccount(t *testing.T) {
	for _, tt := range []struct{ perAccount, running, slots, want int }{
		{5, 0, 1, 5}, {5, 7, 1, 5}, {5, 8, 1, 1}, {5, 8, 2, 5}, {5, 1000, 2, 1}, {1, 0, 8, 1},
	} {
		if got := maxPerAccount(tt.perAccount, tt.running, tt.slots); got != tt.want {
			t.Errorf("with %d running tasks on %d slots: %d, want %d", tt.running, tt.slots, got, tt.want)
		}
	}
}

func TestNextPieces(t *testing.T) {
	// Each letter is a piece of an account, a capital an urgent one.
	ready := func(users string) (all []store.ReadyPiece) {
		for i, u := range users {
			all = append(all, store.ReadyPiece{UserID: strings.ToLower(string(u)), Name: fmt.Sprint(i), Urgent: u >= 'A' && u <= 'Z'})
		}
		return all
	}
	for _, tt := range []struct {
		ready   string
		pending map[string]int
		slots   int
		want    string // account and number of each piece
	}{
		{"", nil, 2, ""},
		{"aaaabb", nil, 2, "a0 b4 a1 b5"},
		{"aaaabb", map[string]int{"a": 3}, 3, "b4 b5 a0"},
		{"aaaa", map[string]int{"b": 2}, 2, "a0 a1"},
		{"aaaa", map[string]int{"b": 9}, 2, ""},
		{"aaBa", map[string]int{"c": 2}, 1, "b2"},
		{"aaBa", map[string]int{"c": 2}, 2, "b2 a0"},
		{"aAB", map[string]int{"c": 99}, 1, "a1 b2"},
		{"AAB", nil, 1, "a0 b2 a1"},
		{"Aab", nil, 1, "a0 b2"},
		{"aaaa", nil, 0, "a0 a1"}, // no node has announced its slots yet
	} {
		var got []string
		for _, p := range nextPieces(store.EncodeQueue{Slots: tt.slots, Pending: tt.pending, Ready: ready(tt.ready)}) {
			got = append(got, p.UserID+p.Name)
		}
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("of %q with %v pending and %d slots: %q, want %q", tt.ready, tt.pending, tt.slots, got, tt.want)
		}
	}
}

func TestYields(t *testing.T) {
	for _, tt := range []struct {
		use  store.SlotUse
		want bool
	}{
		{store.SlotUse{Slots: 2, Running: 2, OthersQueued: 0}, false},
		{store.SlotUse{Slots: 2, Running: 2, OthersQueued: 1}, true},
		{store.SlotUse{Slots: 2, Running: 1, OthersQueued: 1}, false},
		{store.SlotUse{Slots: 0, Running: 1, OthersQueued: 1}, true}, // its node is not known any more
	} {
		if got := yields(tt.use); got != tt.want {
			t.Errorf("with %+v: %v, want %v", tt.use, got, tt.want)
		}
	}
}

var engines = []struct {
	name string
	url  func(testing.TB) string
}{
	{"sqlite", func(t testing.TB) string { return storetest.SQLite(t, store.Open, storeOptions("")) }},
	{"postgres", func(t testing.TB) string { return storetest.PostgreSQL(t, store.Open, storeOptions("")) }},
}

// addWaiting makes accounts with waiting tasks, and returns their ids.
func addWaiting(t testing.TB, st *store.Store, accounts, tasks int) (ids []string) {
	t.Helper()
	ctx := t.Context()
	if err := st.Tx(ctx, func(tx *store.Tx) error {
		for range accounts {
			u := weir.User{ID: weir.NewID(), Kind: "user", Email: weir.NewID() + "@example.com", CreatedAt: 1}
			if err := tx.CreateUser(ctx, &u); err != nil {
				return err
			}
			ids = append(ids, u.ID)
			for range tasks {
				task := weir.Task{
					ID: weir.NewID(), Type: weir.TaskUpload, UserID: u.ID, ProjectID: "p", CreatedAt: 1, ScheduledAt: weir.Millis(1 + rand.N(1000*tasks)),
					Status: weir.TaskStatus{Phase: weir.TaskWaiting, UpdatedAt: 1},
				}
				if err := tx.CreateTask(ctx, &task); err != nil {
					return err
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return ids
}

func eachEngine(t *testing.T, test func(t *testing.T, url string)) {
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine.name, func(t *testing.T) {
			t.Parallel()
			test(t, engine.url(t))
		})
	}
}

// admitter returns a node that only admits tasks.
func admitter(t *testing.T, url, node string, slots, perAccount int) *Work {
	st, err := store.Open(t.Context(), url, storeOptions(node))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	return &Work{Options: Options{Store: st, Slots: slots, MaxRunning: perAccount, Log: slog.New(slog.DiscardHandler)}}
}

func inState(t *testing.T, st *store.Store, state weir.QueueState) (tasks []string) {
	t.Helper()
	for cursor, more := "", true; more; more = cursor != "" {
		page, err := st.QueuedTasks(t.Context(), store.Query{Limit: 100, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range page.Items {
			if task.State == state {
				tasks = append(tasks, task.ID)
			}
		}
		cursor = page.Next
	}
	return tasks
}

// TestQueueOrder shows that the queue lists tasks in the order in which they are admitted.
func TestQueueOrder(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		w := admitter(t, url, "node-a", 100, 100)
		for n := range 6 {
			addWaiting(t, w.Store, 1, n*3%7)
		}
		admit := func() string {
			t.Helper()
			before := inState(t, w.Store, weir.QueueStarting)
			if ok, err := w.admitNext(t.Context()); err != nil || !ok {
				t.Fatalf("not admitted: %v, %v", ok, err)
			}
			for _, id := range inState(t, w.Store, weir.QueueStarting) {
				if !strings.Contains(strings.Join(before, " "), id) {
					return id
				}
			}
			t.Fatal("nothing was admitted")
			return ""
		}
		for range 5 { // so that the accounts differ
			admit()
			addWaiting(t, w.Store, 1, 2)
		}
		listed := inState(t, w.Store, weir.QueueWaiting)
		var admitted []string
		for range listed {
			admitted = append(admitted, admit())
		}
		if diff := cmp.Diff(listed, admitted); diff != "" || len(listed) < 15 {
			t.Errorf("%d tasks were listed in another order than they were admitted (-listed +admitted):\n%s", len(listed), diff)
		}
	})
}

// TestTwoAdmit has two nodes admit tasks at once: each task is admitted by one of them, and no
// account gets more than it may have.
func TestTwoAdmit(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		a, b := admitter(t, url, "node-a", 100, 7), admitter(t, url, "node-b", 100, 7)
		addWaiting(t, a.Store, 3, 10)
		var both sync.WaitGroup
		for _, w := range []*Work{a, b} {
			both.Go(func() {
				if err := w.admitAll(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		n, err := a.Store.RunningTasks(t.Context())
		if err != nil || n != 3*7 {
			t.Errorf("%d tasks were admitted, %v; want 7 of each account", n, err)
		}
		stats, err := a.Store.JobStats(t.Context())
		if diff := cmp.Diff(map[[2]string]int64{{"control", "available"}: 3 * 7}, stats); diff != "" || err != nil {
			t.Errorf("jobs differ (-want +got):\n%s%v", diff, err)
		}
	})
}
