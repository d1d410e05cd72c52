package weir

import (
	"strings"
	"testing"
)

const (
	testCIDv0 = "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG"
	testCIDv1 = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"
	testTx    = "bNbA3TEQVL60xlgCcqdz4ZPHFZ711cZ3hmkpGttDt_U"
)

func TestGatewaysResolve(t *testing.T) {
	for _, tt := range []struct{ url, want string }{
		{"https://ipfs.io/ipfs/" + testCIDv0, "ipfs://" + testCIDv0},
		{"https://ipfs.io/ipfs/" + testCIDv0 + "/a%20b/c.mp4?filename=x", "ipfs://" + testCIDv0 + "/a%20b/c.mp4"},
		{"http://W3S.link/ipfs/" + testCIDv1 + "/", "ipfs://" + testCIDv1},
		{"https://" + testCIDv1 + ".ipfs.dweb.link/video.mp4", "ipfs://" + testCIDv1 + "/video.mp4"},
		{"https://" + strings.ToUpper(testCIDv1) + ".ipfs.dweb.link", "ipfs://" + testCIDv1},
		{"https://arweave.net/" + testTx, "ar://" + testTx},
		{"https://arweave.net/" + testTx + "/video.mp4", "ar://" + testTx + "/video.mp4"},
		{"https://nt3ma3jrcbkl5ngglabhfj3t4gj4ofm665k4m54gneuru22dw72q.arweave.net/" + testTx + "/v.mp4", "ar://" + testTx + "/v.mp4"},

		{"https://example.com/ipfs/" + testCIDv0, ""},
		{"https://ipfs.io/ipns/" + testCIDv0, ""},
		{"https://ipfs.io/ipfs/nonsense", ""},
		{"https://ipfs.io/", ""},
		{"https://user:pass@ipfs.io/ipfs/" + testCIDv0, ""},
		{"https://nonsense.ipfs.dweb.link/video.mp4", ""},
		{"https://" + testCIDv1 + ".ipfs.example.com/video.mp4", ""},
		{"https://" + testCIDv1 + ".ipfs.evil.dweb.link/video.mp4", ""},
		{"https://evilarweave.net/" + testTx, ""},
		{"https://arweave.net/graphql", ""},
		{"ipfs://" + testCIDv0, ""},
		{"ar://" + testTx, ""},
		{"http://[::1", ""},
	} {
		got, ok := DefaultGateways().Resolve(tt.url)
		want := tt.want
		if want == "" {
			want = tt.url
		}
		if got != want || ok != (tt.want != "") {
			t.Errorf("Resolve(%q) = %q, %v; want %q, %v", tt.url, got, ok, want, tt.want != "")
		}
	}
}

func FuzzGatewaysResolve(f *testing.F) {
	f.Add("https://ipfs.io/ipfs/" + testCIDv0 + "/a")
	f.Add("https://" + testCIDv1 + ".ipfs.dweb.link/")
	f.Add("https://arweave.net/" + testTx)
	f.Fuzz(func(t *testing.T, url string) {
		name, ok := DefaultGateways().Resolve(url)
		if !ok && name != url {
			t.Errorf("%q became %q although it is no gateway's", url, name)
		}
		if again, twice := DefaultGateways().Resolve(name); ok && (twice || again != name) {
			t.Errorf("%q is resolved to %q and that to %q", url, name, again)
		}
	})
}
