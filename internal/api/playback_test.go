package api

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// While the database is away, viewers get the ways to play something as they were.
func TestPlaybackWithoutDatabase(t *testing.T) {
	t.Parallel()
	f := openFixture(t, engines()["sqlite"](t))
	user := weir.User{ID: weir.NewID(), Email: "ann@example.com", CreatedAt: weir.At(time.Now())}
	stream, err := weir.NewStream{Name: "s"}.Stream(&weir.Caller{UserID: user.ID}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.store.Tx(t.Context(), func(tx *store.Tx) error {
		if err := tx.CreateUser(t.Context(), &user); err != nil {
			return err
		}
		return tx.CreateStream(t.Context(), &stream)
	}); err != nil {
		t.Fatal(err)
	}
	ask := func(id string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		f.server.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/api/playback/"+id, nil))
		return w
	}
	before := ask(stream.PlaybackID)
	f.store.Close()
	if w := ask(stream.PlaybackID); before.Code != http.StatusOK || w.Code != before.Code || w.Body.String() != before.Body.String() {
		t.Errorf("%d %s, before %d %s", w.Code, w.Body, before.Code, before.Body)
	}
	if w := ask("unknown"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("of what is not known: %d %s", w.Code, w.Body)
	}
}
