package weir

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var testCaller = &Caller{UserID: "u1", ProjectID: "p1"}

func makeAsset(t *testing.T, body string) (Asset, Task) {
	t.Helper()
	var n NewAsset
	if err := json.Unmarshal([]byte(body), &n); err != nil {
		t.Fatal(err)
	}
	a, task, err := n.Asset(testCaller, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a, task
}

func TestSameImport(t *testing.T) {
	const first = `{"name":"a","url":"https://example.com/a","creatorId":"cleo","profiles":[{"bitrate":1000}],"storage":{"ipfs":{"spec":{"nftMetadata":{"a":1,"b":2}}}}}`
	earlier, earlierTask := makeAsset(t, first)
	for body, want := range map[string]bool{
		first: true,
		`{"name":"a","url":"https://example.com/a","profiles":[{"bitrate":1000}],"storage":{"ipfs":{"spec":{"nftMetadata":{"b":2,"a":1}}}}}`:                                    true, // no creator named
		`{"name":"a","url":"https://example.com/a","creatorId":"ben","profiles":[{"bitrate":1000}],"storage":{"ipfs":{"spec":{"nftMetadata":{"a":1,"b":2}}}}}`:                  false,
		`{"name":"b","url":"https://example.com/a","profiles":[{"bitrate":1000}],"storage":{"ipfs":{"spec":{"nftMetadata":{"a":1,"b":2}}}}}`:                                    false,
		`{"name":"a","url":"https://example.com/a","profiles":[{"bitrate":2000}],"storage":{"ipfs":{"spec":{"nftMetadata":{"a":1,"b":2}}}}}`:                                    false,
		`{"name":"a","url":"https://example.com/a","storage":{"ipfs":{"spec":{"nftMetadata":{"a":1,"b":2}}}}}`:                                                                  false,
		`{"name":"a","url":"https://example.com/a","profiles":[{"bitrate":1000}],"storage":{"ipfs":true}}`:                                                                      false,
		`{"name":"a","url":"https://example.com/a","profiles":[{"bitrate":1000}]}`:                                                                                              false,
		`{"name":"a","url":"https://example.com/a","profiles":[{"bitrate":1000}],"storage":{"ipfs":{"spec":{"nftMetadata":{"a":1,"b":2}}}},"staticMp4":true}`:                   false,
		`{"name":"a","url":"https://example.com/a","profiles":[{"bitrate":1000}],"storage":{"ipfs":{"spec":{"nftMetadata":{"a":1,"b":2}}}},"objectStoreId":"x"}`:                false,
		`{"name":"a","url":"https://u:p@example.com/a","profiles":[{"bitrate":1000}],"storage":{"ipfs":{"spec":{"nftMetadata":{"a":1,"b":2}}}}}`:                                false,
		`{"name":"a","url":"https://example.com/a","profiles":[{"bitrate":1000}],"storage":{"ipfs":{"spec":{"nftMetadata":{"a":1,"b":2}}}},"playbackPolicy":{"type":"public"}}`: false,
	} {
		a, task := makeAsset(t, body)
		if got := SameImport(a, task, earlier, earlierTask); got != want {
			t.Errorf("SameImport of %s = %v, want %v", body, got, want)
		}
	}
	// Two keys look alike once they are masked.
	const encrypted = `{"name":"a","url":"https://example.com/a","encryption":{"encryptedKey":"KEY"},"playbackPolicy":{"type":"jwt"}}`
	a, aTask := makeAsset(t, strings.Replace(encrypted, "KEY", "c2VjcmV0", 1))
	b, bTask := makeAsset(t, strings.Replace(encrypted, "KEY", "b3RoZXIx", 1))
	if SameImport(a, aTask, b, bTask) {
		t.Error("two keys count as the same")
	}
}

func TestImportSource(t *testing.T) {
	for _, tt := range []struct {
		url         string
		want        AssetSource
		param, seal string
	}{
		{"https://example.com/a?b=c", AssetSource{Type: "url", URL: "https://example.com/a?b=c"}, "https://example.com/a?b=c", ""},
		{"https://u:p@example.com/a", AssetSource{Type: "url", URL: "https://***:***@example.com/a"}, "https://***:***@example.com/a", "https://u:p@example.com/a"},
		{
			"https://ipfs.io/ipfs/" + testCIDv0,
			AssetSource{Type: "url", URL: "ipfs://" + testCIDv0, GatewayURL: "https://ipfs.io/ipfs/" + testCIDv0},
			"https://ipfs.io/ipfs/" + testCIDv0, "",
		},
		{
			"https://example.com/a?X-Amz-Signature=f00&v=1",
			AssetSource{Type: "url", URL: "https://example.com/a?X-Amz-Signature=***&v=1"},
			"https://example.com/a?X-Amz-Signature=***&v=1", "https://example.com/a?X-Amz-Signature=f00&v=1",
		},
		{
			"https://ipfs.io/ipfs/" + testCIDv0 + "?token=x",
			AssetSource{Type: "url", URL: "ipfs://" + testCIDv0, GatewayURL: "https://ipfs.io/ipfs/" + testCIDv0 + "?token=***"},
			"https://ipfs.io/ipfs/" + testCIDv0 + "?token=***", "https://ipfs.io/ipfs/" + testCIDv0 + "?token=x",
		},
		{"ar://" + testTx + "/a", AssetSource{Type: "url", URL: "ar://" + testTx + "/a"}, "ar://" + testTx + "/a", ""},
	} {
		a, task, err := NewAsset{Name: "a", URL: tt.url}.Asset(testCaller, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, a.Source); diff != "" {
			t.Errorf("source of %s (-want +got):\n%s", tt.url, diff)
		}
		if task.Params.Upload.URL != tt.param || task.Secrets.InputURL != tt.seal {
			t.Errorf("task of %s shows %q and seals %q, want %q and %q", tt.url, task.Params.Upload.URL, task.Secrets.InputURL, tt.param, tt.seal)
		}
	}
}

func TestSegmentSize(t *testing.T) {
	for given, want := range map[float64]int{0: 0, -5: 0, 0.1: 2, 1: 2, 2.4: 2, 4.4: 4, 4.5: 5, 20: 20, 1e300: 20} {
		_, task, err := NewAsset{Name: "a", TargetSegmentSizeSecs: given}.Asset(testCaller, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if got := task.Params.Upload.TargetSegmentSizeSecs; got != want {
			t.Errorf("segment size of %v = %d, want %d", given, got, want)
		}
	}
}

func TestAssetStorage(t *testing.T) {
	now := time.Now()
	spec := func(metadata string) *IPFSSpec { return &IPFSSpec{NFTMetadata: json.RawMessage(metadata)} }
	var a Asset
	if a.WantsOnIPFS(nil) || !a.WantsOnIPFS(spec(`{}`)) {
		t.Error("an asset that is nowhere else wants a copy exactly when it is asked for")
	}
	a.StoreOnIPFS(*spec(`{"a":1,"b":2}`), "t1", now)
	if a.WantsOnIPFS(spec(`{"b":2,"a":1}`)) || !a.WantsOnIPFS(spec(`{"a":1}`)) {
		t.Error("a copy that is on its way is wanted again exactly when it is to be another")
	}
	a.FailStorage("t0", "x", nil, now)
	if a.Storage.Status.Phase != "waiting" {
		t.Errorf("another task's failure made the phase %s", a.Storage.Status.Phase)
	}
	a.FailStorage("t1", "cancelled", nil, now)
	want := StorageStatus{Phase: "failed", ErrorMessage: "cancelled", Tasks: StorageTasks{Failed: "t1"}}
	if diff := cmp.Diff(&want, a.Storage.Status); diff != "" {
		t.Errorf("after a failure (-want +got):\n%s", diff)
	}
	if !a.WantsOnIPFS(spec(`{"a":1,"b":2}`)) {
		t.Error("after a failure the same request must count again")
	}

	// A copy that is there stays when the next one fails.
	a.Storage = &AssetStorage{
		IPFS:   &IPFSStorage{Spec: spec(`{"a":1}`), CID: "bafy"},
		Status: &StorageStatus{Phase: "ready", Tasks: StorageTasks{Last: "t1"}},
	}
	a.StoreOnIPFS(*spec(`{"a":2}`), "t2", now)
	if a.Storage.IPFS.CID != "bafy" || a.Storage.Status.Tasks != (StorageTasks{Pending: "t2", Last: "t1"}) {
		t.Errorf("storage while another copy is made: %+v, %+v", a.Storage.IPFS, a.Storage.Status)
	}
	a.FailStorage("t2", "no", spec(`{"a":1}`), now)
	if a.Storage.Status.Phase != "reverted" || string(a.Storage.IPFS.Spec.NFTMetadata) != `{"a":1}` || a.Storage.IPFS.CID != "bafy" {
		t.Errorf("storage after the failure: %+v, %+v", a.Storage.IPFS, a.Storage.Status)
	}
}

func TestAssetRestore(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		asset Asset
		want  AssetPhase
	}{
		{Asset{VideoSpec: &VideoSpec{Duration: 1}}, AssetReady},
		{Asset{}, AssetFailed},
	} {
		a := tt.asset
		if err := a.Restore(now); KindOf(err) != Refused {
			t.Errorf("restoring what is not deleted: %v, want refused", err)
		}
		a.Delete(now)
		if err := a.Restore(now); err != nil {
			t.Fatal(err)
		}
		if a.Deleted || a.DeletedAt != 0 || a.Status.Phase != tt.want {
			t.Errorf("restored to %+v, want phase %s", a, tt.want)
		}
		a.Delete(now)
		a.Status.Phase = AssetDeleted
		if err := a.Restore(now); KindOf(err) != Refused {
			t.Errorf("restoring what has no files any more: %v, want refused", err)
		}
	}
}

func TestTaskRetry(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name string
		task Task
		want Kind
	}{
		{"failed", Task{ScheduledAt: 1, Status: TaskStatus{Phase: TaskFailed}}, ""},
		{"cancelled", Task{ScheduledAt: 1, Status: TaskStatus{Phase: TaskCancelled}}, ""},
		{"running", Task{ScheduledAt: 1, Status: TaskStatus{Phase: TaskRunning}}, Refused},
		{"never uploaded", Task{Status: TaskStatus{Phase: TaskCancelled}}, Refused},
		{"without its credentials", Task{ScheduledAt: 1, Status: TaskStatus{Phase: TaskFailed}, Secrets: TaskSecrets{Gone: true}}, Invalid},
	} {
		err := tt.task.Retry(now)
		switch {
		case tt.want == "" && (err != nil || tt.task.Status.Phase != TaskWaiting || *tt.task.Status.Retries != 0 || tt.task.ScheduledAt != 1):
			t.Errorf("%s: %v, %+v; want it to wait", tt.name, err, tt.task.Status)
		case tt.want != "" && KindOf(err) != tt.want:
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
}

func TestMaskURL(t *testing.T) {
	for raw, want := range map[string]string{
		"https://example.com/a?b=c#d=e":          "https://example.com/a?b=c#d=e",
		"https://example.com/a?author=x&sigma=2": "https://example.com/a?author=x&sigma=2",
		"https://b.s3.amazonaws.com/a%20b.mp4?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIA%2F1&X-Amz-Date=1&X-Amz-Signature=f00&X-Amz-Security-Token=IQ%3D%3D": "https://b.s3.amazonaws.com/a%20b.mp4?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=***&X-Amz-Date=1&X-Amz-Signature=***&X-Amz-Security-Token=***",
		"https://b.s3.amazonaws.com/a?AWSAccessKeyId=AK&Expires=1&Signature=f%2B0":                                                                                       "https://b.s3.amazonaws.com/a?AWSAccessKeyId=***&Expires=1&Signature=***",
		"https://storage.googleapis.com/a?GoogleAccessId=x%40y&X-Goog-Signature=f0":                                                                                      "https://storage.googleapis.com/a?GoogleAccessId=***&X-Goog-Signature=***",
		"https://a.blob.core.windows.net/c/f?sv=2020&sp=r&sig=abc%3D":                                                                                                    "https://a.blob.core.windows.net/c/f?sv=2020&sp=r&sig=***",
		"https://example.com/a?token=x&access_token=y;api%5Fkey=z&k=1&PASSWORD=p&jwt=":                                                                                   "https://example.com/a?token=***&access_token=***;api%5Fkey=***&k=1&PASSWORD=***&jwt=",
		"https://u:p@example.com/a?%zz=1&sig=x":                                                                                                                          "https://***:***@example.com/a?%zz=***&sig=***",
		"ipfs://bafy/a?token=x#sig=y":                                                                                                                                    "ipfs://bafy/a?token=***#sig=y",
	} {
		if got := MaskURL(raw); got != want {
			t.Errorf("MaskURL(%q) = %q, want %q", raw, got, want)
		}
	}
}

func TestWithoutCredentials(t *testing.T) {
	for raw, want := range map[string]string{
		"https://example.com/a":                  "https://example.com/a",
		"https://u:hunter2@example.com/a?b=c#d":  "https://***:***@example.com/a?***",
		"https://hunter2@example.com/a":          "https://***:***@example.com/a",
		"s3+https://k:hunter2@example.com/b/%2F": "s3+https://***:***@example.com/b/%2F",
		"https://[::1":                           "***",
	} {
		if got := withoutCredentials(raw); got != want {
			t.Errorf("withoutCredentials(%q) = %q, want %q", raw, got, want)
		}
	}
}
