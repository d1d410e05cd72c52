package weir

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNFTMetadataFile(t *testing.T) {
	a := Asset{Name: "film", PlaybackID: "abcd"}
	for name, tt := range map[string]struct {
		spec IPFSSpec
		want string
	}{
		"file": {IPFSSpec{}, `{"animation_url":"ipfs://bafy","description":"Video: film","image":"https://weir.example/hls/abcd/poster.jpg","name":"film"}`},
		"player": {IPFSSpec{NFTMetadataTemplate: "player"}, `{"animation_url":"https://weir.example/play/abcd","description":"Video: film",
			"external_url":"https://weir.example/play/abcd","image":"https://weir.example/hls/abcd/poster.jpg","name":"film",
			"properties":{"playbackId":"abcd","video":"ipfs://bafy"}}`},
		"merged": {
			IPFSSpec{NFTMetadataTemplate: "player", NFTMetadata: json.RawMessage(`{"name":"other","image":null,"external_url":null,
				"properties":{"playbackId":null,"more":{"a":1,"b":null}},"attributes":[{"c":null}]}`)},
			`{"animation_url":"https://weir.example/play/abcd","attributes":[{"c":null}],"description":"Video: film","name":"other",
				"properties":{"more":{"a":1},"video":"ipfs://bafy"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := NFTMetadataFile(a, tt.spec, "bafy", Base{URL: "https://weir.example"})
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("metadata differs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCopyOfAsset follows the copy of an asset on IPFS from its request to its removal.
func TestCopyOfAsset(t *testing.T) {
	now := time.UnixMilli(1000)
	a := Asset{ID: "a"}
	a.StoreOnIPFS(IPFSSpec{}, "t1", now)
	a.ProcessStorage("t0", 0.5) // not the task that copies it
	if a.Storage.Status.Phase != "waiting" {
		t.Errorf("status = %+v", a.Storage.Status)
	}
	a.ProcessStorage("t1", 0.5)
	if s := a.Storage.Status; s.Phase != "processing" || *s.Progress != 0.5 || s.Tasks.Pending != "t1" {
		t.Errorf("status = %+v", s)
	}
	a.StoredOnIPFS(IPFSCopy{CID: "bafyvideo", MetadataCID: "bafymeta", Served: true}, IPFSSpec{}, "t1", now)
	shown := a.WithBase(Base{URL: "https://weir.example"})
	if shown.Storage.IPFS.GatewayURL != "https://weir.example/ipfs/bafyvideo" || shown.Storage.IPFS.NFTMetadata.GatewayURL != "https://weir.example/ipfs/bafymeta" ||
		a.Storage.IPFS.GatewayURL != "/ipfs/bafyvideo" || a.Storage.IPFS.NFTMetadata.GatewayURL != "/ipfs/bafymeta" {
		t.Errorf("shown %+v of %+v", shown.Storage.IPFS, a.Storage.IPFS)
	}
	shown = a.WithBase(Base{URL: "https://weir.example", IPFS: "https://ipfs.example"})
	if shown.Storage.IPFS.GatewayURL != "https://ipfs.example/ipfs/bafyvideo" || shown.Storage.IPFS.NFTMetadata.GatewayURL != "https://ipfs.example/ipfs/bafymeta" {
		t.Errorf("with a host of its own: %+v", shown.Storage.IPFS)
	}
	if out := (IPFSCopy{CID: "bafyvideo", MetadataCID: "bafymeta"}).Output(Base{URL: "https://weir.example"}); out.VideoFileGatewayURL != "" || out.NFTMetadataGatewayURL != "" {
		t.Errorf("what is elsewhere has the gateway %+v", out)
	}
	if a.RemovedFromIPFS("bafyother", now) || !a.RemovedFromIPFS("bafymeta", now) || a.Storage.IPFS.NFTMetadata != nil || a.Storage.IPFS.CID == "" {
		t.Errorf("without its metadata: %+v", a.Storage)
	}
	if !a.RemovedFromIPFS("bafyvideo", now) || a.Storage != nil {
		t.Errorf("without its file: %+v", a.Storage)
	}
}
