//go:build soak

package ucan

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/boxo/ipld/unixfs"
	"github.com/ipfs/go-cid"
	format "github.com/ipfs/go-ipld-format"
	"github.com/multiformats/go-multihash"

	"weir/e2e/harness"
	words "weir/internal/weir"
)

// bomb asks the gateway for graphs of a few megabytes that expand without end, with 16 clients at once, and
// measures the memory of weir. Whoever can store a film can store such nodes: as the last bytes of its file.
func bomb(t *testing.T, r *rig, binary string) {
	w := harness.NewWeir(t)
	w.Binary = binary
	w.Start()
	var service struct{ DID string }
	w.Must("GET", "/api/did", nil, &service)
	space := r.space(t)
	w.Completed(post(w, transcode(harness.NewOrigin(t, harness.TinyClip(t)).URL+"/tiny.mp4",
		r.prove(t, space, service.DID, []string{"space/*", "upload/*"}, nil).Forms["w3"])))
	var uploads []words.IPFSUpload
	w.Must("GET", "/api/ipfs/upload", nil, &uploads)
	st, shard := w.OpenStore(), newCAR(1)
	var roots []string
	for _, links := range []int{1000, 7000} {
		for _, leaf := range [][]byte{{}, make([]byte, 1<<20)} {
			roots = append(roots, addBomb(t, shard, leaf, links))
		}
	}
	if err := os.WriteFile(fmt.Sprintf("%s/media/ipfs/%s/1.car", w.Data, uploads[0].ID), shard.data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := st.AddIPFSBlocks(t.Context(), uploads[0].ID, shard.Blocks); err != nil {
		t.Fatal(err)
	}
	idle := harness.Memory(t, w)
	for _, query := range []string{"", "?format=car", "?format=car&car-dups=y", "?format=car&dag-scope=entity&entity-bytes=1000000000000:*"} {
		var clients sync.WaitGroup
		var statuses [16]string
		var sent [16]int64
		for i := range statuses {
			clients.Go(func() {
				client := &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}
				defer client.CloseIdleConnections()
				answer, err := client.Get(w.URL + "/ipfs/" + roots[i%len(roots)] + query)
				if err != nil {
					statuses[i] = err.Error()
					return
				}
				defer answer.Body.Close()
				statuses[i] = answer.Status
				sent[i], _ = io.CopyN(io.Discard, answer.Body, 100<<20)
			})
		}
		done := make(chan struct{})
		go func() { clients.Wait(); close(done) }()
		var peak int64
		for running := true; running; {
			peak = max(peak, harness.Memory(t, w))
			select {
			case <-done:
				running = false
			case <-time.After(10 * time.Millisecond):
			}
		}
		t.Logf("16 clients of %q: weir had at most %d MB, %d before; they got %v, %v bytes", query, peak>>20, idle>>20, statuses, sent)
		if peak > 500<<20 {
			t.Errorf("%q: weir had %d MB", query, peak>>20)
		}
	}
	w.Stop()
}

// addBomb adds nodes that link the one before many times, and returns the CID of the last one.
func addBomb(t *testing.T, shard *carFile, leaf []byte, links int) string {
	t.Helper()
	add := func(codec uint64, data []byte) cid.Cid {
		hash, err := multihash.Sum(data, multihash.SHA2_256, -1)
		if err != nil {
			t.Fatal(err)
		}
		c := cid.NewCidV1(codec, hash)
		shard.add(c, data)
		return c
	}
	below, size := add(cid.Raw, leaf), uint64(len(leaf))
	for range 30 {
		file, node := unixfs.NewFSNode(unixfs.TFile), new(merkledag.ProtoNode)
		for range links {
			file.AddBlockSize(size)
			if err := node.AddRawLink("", &format.Link{Size: size, Cid: below}); err != nil {
				t.Fatal(err)
			}
		}
		data, err := file.GetBytes()
		if err != nil {
			t.Fatal(err)
		}
		node.SetData(data)
		block, err := node.Marshal()
		if err != nil || len(block) > 512<<10 {
			t.Fatal(len(block), err)
		}
		below, size = add(cid.DagProtobuf, block), min(size*uint64(links), 1<<60)
	}
	return below.String()
}
