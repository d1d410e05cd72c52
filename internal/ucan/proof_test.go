package ucan

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The recorded proofs are for the key with this seed, and at this time. The tools storacha 1.6.32
// and w3cli 7.12.0 made those that have their names, and all.txt, wildcards.txt, old-abilities.txt,
// no-index.txt, expired.txt, ends-soon.txt and other-audience.txt; e2e/ucan/record.mjs made the
// others.
var (
	recordedSeed = [32]byte([]byte(strings.Repeat("\x12", 32)))
	recordedAt   = time.Date(2026, 11, 18, 1, 0, 0, 0, time.UTC)
)

func conditions() Conditions {
	return Conditions{DID(recordedSeed), recordedAt, recordedAt.Add(24 * time.Hour), UploadAbilities()}
}

func recorded(t testing.TB, folder string) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/" + folder + "/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no recorded proofs", err)
	}
	all := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(f), ".txt")] = string(text)
	}
	return all
}

func TestGoodProofs(t *testing.T) {
	const (
		storacha = "did:key:z6MkvoNgQ63Lgg7vcZJ59UDrUEnzF2zN7nbzjnth9ZXvPmVy"
		w3       = "did:key:z6MkwARtHqgwzH8KeGztSxx2JMRhUps26dgd7zB7eLVEHeWc"
		fixed    = "did:key:z6Mkon3Necd6NkkyfoGoHxid2znGc59LU3K7mubaRcFbLfLX"
	)
	spaces := map[string]string{
		"storacha": storacha, "storacha-base64": storacha, "storacha-wrapped": storacha, "all": storacha, "wildcards": storacha, "w3": w3, "w3-base64": w3,
	}
	for name, text := range recorded(t, "good") {
		url := strings.NewReplacer("+", "-", "/", "_", "=", "").Replace(strings.TrimSpace(text))
		for form, text := range map[string]string{
			"as recorded": text,
			"url":         url,
			"padded":      url + strings.Repeat("=", (4-len(url)%4)%4),
			"spaces":      "\n " + strings.Join(strings.Split(text, "A"), " \r\n\tA") + " ",
		} {
			p, err := Check(text, conditions())
			if err != nil {
				t.Errorf("%s, %s: %v", name, form, err)
				continue
			}
			want := spaces[name]
			if want == "" {
				want = fixed
			}
			if p.Space != want {
				t.Errorf("%s: space %s, want %s", name, p.Space, want)
			}
			if account := name == "account"; p.AccountIssued != account {
				t.Errorf("%s: issued by an account: %t, want %t", name, p.AccountIssued, account)
			}
			if lists := name == "all" || name == "wildcards"; p.Allows(UploadList) != lists || p.Allows(UploadRemove) != lists {
				t.Errorf("%s: allows to list and remove: %t, %t, want %t", name, p.Allows(UploadList), p.Allows(UploadRemove), lists)
			}
			if ends := name != "no-end"; p.Expires.IsZero() == ends {
				t.Errorf("%s: ends at %v", name, p.Expires)
			}
		}
	}
}

func TestBadProofs(t *testing.T) {
	bad := recorded(t, "bad")
	good := recorded(t, "good")["storacha-base64"]
	bad["empty"] = " \n"
	bad["no base64"] = "this is not a proof!"
	bad["other text"] = "aGVsbG8gd29ybGQ"
	bad["cut off"] = good[:len(good)/2]
	bad["cut off file"] = recorded(t, "good")["storacha"][:800]
	bad["other character"] = good[:600] + string(good[600]^1) + good[601:]
	bad["trailing bytes"] = recorded(t, "good")["storacha"] + "AAAAAAAA"
	bad["cid"] = "mAXASIAmXBUnUPxCFm+1RrHiIWkN5LXZeFYi6Vd6kwFkpcYaO"
	bad["long"] = strings.Repeat("A", maxText+1)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(bad)) {
		_, err := Check(bad[name], conditions())
		if weir.KindOf(err) != weir.Invalid {
			t.Errorf("%s: %v", name, err)
			continue
		}
		fmt.Fprintf(&b, "%s\n\t%s\n", name, strings.ReplaceAll(err.Error(), "; make", "\n\t; make"))
	}
	golden(t, "testdata/bad.txt", b.String())
}

// TestUntil has proofs that end before or after the time until which they must last.
func TestUntil(t *testing.T) {
	text := recorded(t, "bad")["ends-soon"] // at 01:34:23
	c := conditions()
	c.Until = c.Now.Add(30 * time.Minute)
	if _, err := Check(text, c); err != nil {
		t.Error(err)
	}
	c.Until = c.Now.Add(40 * time.Minute)
	if _, err := Check(text, c); err == nil {
		t.Error("a proof that ends too soon is accepted")
	}
}

// golden compares text with a golden file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
}
