package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func createUser(t *testing.T, st *Store, id string, change func(*weir.User)) weir.User {
	t.Helper()
	u := weir.User{ID: id, Kind: "user", Email: id + "@example.com", CreatedAt: weir.At(time.Now())}
	if change != nil {
		change(&u)
	}
	inTx(t, st, func(tx *Tx) error { return tx.CreateUser(t.Context(), &u) })
	return u
}

func deleteUser(t *testing.T, st *Store, id string) weir.User {
	t.Helper()
	var u weir.User
	inTx(t, st, func(tx *Tx) (err error) {
		u, err = tx.DeleteUser(t.Context(), id, weir.Base{URL: "https://weir.example"}, time.Now())
		return err
	})
	return u
}

// users returns the e-mail addresses that a list has.
func listUsers(t *testing.T, st *Store, q Query) (emails []string) {
	t.Helper()
	page, err := st.Users(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range page.Items {
		emails = append(emails, u.Email)
	}
	slices.Sort(emails)
	return emails
}

// TestDeleteUser deletes an account and restores it: meanwhile nothing finds it.
func TestDeleteUser(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx, now := t.Context(), time.Now()
		createUser(t, st, "root", func(u *weir.User) { u.Admin = true })
		ann := createUser(t, st, "u1", nil)
		key, token := weir.NewAPIKey(), weir.Token{ID: weir.NewID(), UserID: ann.ID, ProjectID: ann.DefaultProjectID, Name: "k"}
		hers, theirs := newStream(t, "hers"), newStream(t, "theirs")
		theirs.UserID = "root"
		asset, task := newImport(t, weir.NewAsset{Name: "a", URL: "https://example.com/a.mp4"})
		gone := newAsset(t, "https://example.com/b.mp4")
		gone.Delete(now)
		task.Queue(now)
		createAssets(t, st, &asset, &gone)
		inTx(t, st, func(tx *Tx) error {
			return errors.Join(
				tx.CreateToken(ctx, &token, key), tx.CreateStream(ctx, &hers), tx.CreateStream(ctx, &theirs), tx.CreateTask(ctx, &task),
				tx.CreateRefreshToken(ctx, "refresh", RefreshToken{UserID: ann.ID, ExpiresAt: weir.At(now.Add(time.Hour))}),
				tx.CreatePasswordLink(ctx, "link", ann.ID, weir.At(now.Add(time.Hour))),
				tx.savePull(ctx, &Pulling{StreamID: hers.ID, Request: 1, Wanted: true, Node: "node-a", Claim: 1}),
				tx.savePull(ctx, &Pulling{StreamID: theirs.ID, Request: 1, Wanted: true, Node: "node-a", Claim: 1}),
				tx.SaveViews(ctx, weir.View{ID: "v", UserID: ann.ID, PlaybackID: hers.PlaybackID, StartedAt: 1}),
			)
		})
		if _, err := st.CallerByKey(ctx, key); err != nil {
			t.Fatal(err)
		}
		views := func() int64 {
			t.Helper()
			rows, err := st.Views(ctx, ViewQuery{PlaybackID: hers.PlaybackID, Public: true})
			if err != nil {
				t.Fatal(err)
			}
			return rows[0].Views
		}

		deleted := deleteUser(t, st, ann.ID)
		if !deleted.Deleted || deleted.DeletedAt == 0 {
			t.Errorf("deleted: %+v", deleted)
		}
		for what, err := range map[string]error{
			"User":         second(st.User(ctx, ann.ID)),
			"UserByEmail":  second(st.UserByEmail(ctx, ann.Email)),
			"CallerByKey":  second(st.CallerByKey(ctx, key)),
			"RefreshToken": second(st.RefreshToken(ctx, "refresh", weir.At(now))),
			"PasswordLink": second(st.PasswordLink(ctx, "link")),
			"publishing":   second(st.StreamForPublisher(ctx, hers.StreamKey)),
			"updating": st.Tx(ctx, func(tx *Tx) error {
				_, err := tx.UpdateUser(ctx, ann.ID, func(*weir.User) error { return nil })
				return err
			}),
			"deleting again": st.Tx(ctx, func(tx *Tx) error { _, err := tx.DeleteUser(ctx, ann.ID, weir.Base{}, now); return err }),
		} {
			if !weir.IsNotFound(err) {
				t.Errorf("%s of a deleted account: %v, want not found", what, err)
			}
		}
		if byID, err := st.UsersByID(ctx, []string{ann.ID, "root"}); err != nil || len(byID) != 1 {
			t.Errorf("UsersByID: %v, %v", byID, err)
		}
		if diff := cmp.Diff([]string{"root@example.com"}, listUsers(t, st, Query{})); diff != "" {
			t.Errorf("list (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"root@example.com", "u1@example.com"}, listUsers(t, st, Query{Deleted: true})); diff != "" {
			t.Errorf("list of all (-want +got):\n%s", diff)
		}
		if page, err := st.Streams(ctx, Query{}); err != nil || len(page.Items) != 1 || page.Items[0].ID != theirs.ID {
			t.Errorf("streams of all users: %+v, %v", page.Items, err)
		}
		if got, err := st.Task(ctx, task.ID); err != nil || got.Status.Phase != weir.TaskCancelled {
			t.Errorf("task: %+v, %v", got.Status, err)
		}
		if got, err := st.Asset(ctx, asset.ID); err != nil || got.Status.Phase != weir.AssetFailed {
			t.Errorf("asset: %+v, %v", got.Status, err)
		}
		if lost, err := st.RenewPulls(ctx, []PullBeat{{StreamID: hers.ID, Claim: 1}, {StreamID: theirs.ID, Claim: 1}}, now); err != nil || !slices.Equal(lost, []string{hers.ID}) {
			t.Errorf("pulls that ended: %v, %v; want that of %s", lost, err, hers.ID)
		}
		if n := views(); n != 0 {
			t.Errorf("the public sees %d views", n)
		}
		// A request that the deletion overtook.
		late := task
		late.ID = weir.NewID()
		late.Queue(now)
		inTx(t, st, func(tx *Tx) error { return tx.CreateTask(ctx, &late) })
		inTx(t, st, func(tx *Tx) error {
			if waiting, err := tx.WaitingAccounts(ctx, []weir.TaskType{task.Type}, 5); err != nil || len(waiting) > 0 {
				t.Errorf("tasks of a deleted account can be admitted: %+v, %v", waiting, err)
			}
			if ok, err := tx.AdmitTask(ctx, WaitingAccount{UserID: ann.ID, TaskID: late.ID}); err != nil || ok {
				t.Errorf("a task of a deleted account was admitted, %v", err)
			}
			return nil
		})
		err := st.Tx(ctx, func(tx *Tx) error {
			return tx.CreateUser(ctx, &weir.User{ID: "other", Kind: "user", Email: ann.Email})
		})
		if weir.KindOf(err) != weir.Conflict || !errors.Is(err, ErrDeletedAccount) {
			t.Errorf("another account with the address: %v", err)
		}

		restore := func(id string) error { return st.Tx(ctx, func(tx *Tx) error { return tx.RestoreUser(ctx, id, now) }) }
		if err := restore(ann.ID); err != nil {
			t.Fatal(err)
		}
		if u, err := st.UserByEmail(ctx, ann.Email); err != nil || u.Deleted || u.DeletedAt != 0 || u.RestoredAt != weir.At(now) {
			t.Errorf("restored: %+v, %v", u, err)
		}
		if _, err := st.CallerByKey(ctx, key); err != nil {
			t.Errorf("the key after the account was restored: %v", err)
		}
		if _, err := st.StreamForPublisher(ctx, hers.StreamKey); err != nil {
			t.Errorf("publishing after the account was restored: %v", err)
		}
		if _, err := st.RefreshToken(ctx, "refresh", weir.At(now)); !weir.IsNotFound(err) {
			t.Errorf("a log-in from before: %v, want not found", err)
		}
		if a, err := st.Asset(ctx, gone.ID); err != nil || !a.Deleted {
			t.Errorf("an asset that its owner had deleted: %+v, %v", a.Status, err)
		}
		if n := views(); n != 1 {
			t.Errorf("%d views, want 1", n)
		}
		if err := restore(ann.ID); weir.KindOf(err) != weir.Refused {
			t.Errorf("restored again: %v", err)
		}
		if err := restore("nobody"); !weir.IsNotFound(err) {
			t.Errorf("restored nobody: %v", err)
		}
		if err := st.Tx(ctx, func(tx *Tx) error { _, err := tx.DeleteUser(ctx, "root", weir.Base{}, now); return err }); weir.KindOf(err) != weir.Refused {
			t.Errorf("the administrator was deleted: %v", err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// TestPurgeDeletedAccounts shows that an account is purged after the grace, once, and can't be
// restored then.
func TestPurgeDeletedAccounts(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		createUser(t, st, "ann", nil)
		createUser(t, st, "bob", nil)
		u := deleteUser(t, st, "ann")
		purge := func(before time.Time) (n int) {
			t.Helper()
			inTx(t, st, func(tx *Tx) (err error) {
				n, err = tx.PurgeDeletedAccounts(ctx, before, 10)
				return err
			})
			return n
		}
		if n := purge(u.DeletedAt.Time()); n != 0 {
			t.Errorf("%d accounts were purged before their time", n)
		}
		if purging, err := st.Purging(ctx, "ann"); err != nil || purging {
			t.Errorf("purging before its time: %v, %v", purging, err)
		}
		later := u.DeletedAt.Time().Add(time.Millisecond)
		if n, again := purge(later), purge(later); n != 1 || again != 0 {
			t.Errorf("%d accounts were purged, then %d; want 1, then none", n, again)
		}
		if purging, err := st.Purging(ctx, "ann"); err != nil || !purging {
			t.Errorf("purging: %v, %v", purging, err)
		}
		ref, err := one(ctx, st.conn, scanText, "SELECT args->>'ref' FROM river_job WHERE kind = 'purge'")
		if err != nil {
			t.Fatal(err)
		}
		if p, err := PurgeRef(ref); err != nil || p != (Purge{UserID: "ann"}) {
			t.Errorf("purge of %q = %+v, %v", ref, p, err)
		}
		if err := st.Tx(ctx, func(tx *Tx) error { return tx.RestoreUser(ctx, "ann", time.Now()) }); weir.KindOf(err) != weir.Refused {
			t.Errorf("restored while it is purged: %v", err)
		}
	})
}

// tableColumns returns the columns of all of weir's own tables, with their types.
func tableColumns(t *testing.T, st *Store) map[string]map[string]string {
	t.Helper()
	sql := "SELECT table_name, column_name, upper(data_type) FROM information_schema.columns WHERE table_schema = current_schema()"
	if _, ok := st.engine.(*sqlite); ok {
		sql = "SELECT m.name, c.name, c.type FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'"
	}
	all := map[string]map[string]string{}
	_, err := many(t.Context(), st.conn, func(r rows) (n int, err error) {
		var table, column, kind string
		if err := r.Scan(&table, &column, &kind); err != nil {
			return 0, err
		}
		if all[table] == nil {
			all[table] = map[string]string{}
		}
		all[table][column] = kind
		return 0, nil
	}, sql)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestAccountRows compares the list of an account's rows with the tables: what is in no list would
// stay when the account is gone.
func TestAccountRows(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		listed := map[string]bool{}
		for _, r := range accountRows {
			listed[r.table] = true
		}
		for table, columns := range tableColumns(t, st) {
			for _, owner := range []string{"user_id", "stream_id", "session_id", "asset_id", "task_id", "webhook_id", "target_id"} {
				if columns[owner] != "" && !listed[table] {
					t.Errorf("table %s has %s and is not in accountRows", table, owner)
				}
			}
		}
	})
}

// TestForgetUser gives two accounts a row in every table and removes one of them.
func TestForgetUser(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx, columns := t.Context(), tableColumns(t, st)
		for number, user := range []string{"ann", "bob"} {
			for _, r := range accountRows {
				var names, holes []string
				var args []any
				for column, kind := range columns[r.table] {
					var value any
					switch {
					case column == "user_id" || r.table == "account" && column == "id":
						value = user
					case column == "id" || strings.HasSuffix(column, "_id") && kind == "TEXT":
						value = user + "-" + strings.TrimSuffix(column, "_id")
						if column == "id" {
							value = user + "-" + r.table
						}
					case r.table == "event" && column == "seq":
						value = int64(number + 1)
					case kind == "TEXT":
						value = user + "-" + column
					case strings.HasPrefix(kind, "BOOL"):
						value = false
					case kind == "BYTEA" || kind == "BLOB":
						value = []byte{1}
					default:
						value = int64(7)
					}
					names, holes, args = append(names, column), append(holes, fmt.Sprintf("$%d", len(args)+1)), append(args, value)
				}
				if _, err := st.conn.exec(ctx, "INSERT INTO "+r.table+" ("+strings.Join(names, ", ")+") VALUES ("+strings.Join(holes, ", ")+")", args...); err != nil {
					t.Fatalf("%s: %v", r.table, err)
				}
			}
		}
		for range 2 { // it can be repeated
			if err := st.ForgetUser(ctx, "ann"); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range accountRows {
			if n, err := one(ctx, st.conn, scanInt, "SELECT count(*) FROM "+r.table); err != nil || n != 1 {
				t.Errorf("%s has %d rows (%v), want the one of the other account", r.table, n, err)
			}
			if n, err := one(ctx, st.conn, scanInt, "SELECT count(*) FROM "+r.table+" WHERE "+r.condition, "bob"); err != nil && r.table != "account" || n != 1 && (r.condition == ofUser || r.table == "account") {
				t.Errorf("%s has %d rows of the other account (%v), want 1", r.table, n, err)
			}
		}
	})
}

// TestOrphans finds the content of accounts that were deleted without it, and deletes one.
func TestOrphans(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		createUser(t, st, "ann", nil)
		hers, lost := newStream(t, "hers"), newStream(t, "lost")
		hers.UserID, lost.UserID = "ann", "nobody"
		a := newAsset(t, "https://example.com/a.mp4")
		a.UserID = "nobody"
		createAssets(t, st, &a)
		inTx(t, st, func(tx *Tx) error { return errors.Join(tx.CreateStream(ctx, &hers), tx.CreateStream(ctx, &lost)) })
		got, err := st.Orphans(ctx)
		if diff := cmp.Diff([]Orphan{{"nobody", 2}}, got); err != nil || diff != "" {
			t.Errorf("orphans (-want +got): %v\n%s", err, diff)
		}
		for _, id := range []string{"ann", "unknown"} {
			if err := st.Tx(ctx, func(tx *Tx) error { _, err := tx.DeleteOrphan(ctx, id, time.Now()); return err }); !weir.IsNotFound(err) {
				t.Errorf("%s was deleted as an orphan: %v", id, err)
			}
		}
		inTx(t, st, func(tx *Tx) error { _, err := tx.DeleteOrphan(ctx, "nobody", time.Now()); return err })
		if got, err := st.Orphans(ctx); err != nil || len(got) != 0 {
			t.Errorf("orphans left: %v, %v", got, err)
		}
		inTx(t, st, func(tx *Tx) error {
			n, err := tx.PurgeDeletedAccounts(ctx, time.Now().Add(time.Minute), 10)
			if n != 1 {
				t.Errorf("%d accounts are purged, want 1", n)
			}
			return err
		})
	})
}
