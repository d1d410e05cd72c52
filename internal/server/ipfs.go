package server

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"weir/internal/api"
	"weir/internal/blob"
	"weir/internal/config"
	"weir/internal/endpoint"
	"weir/internal/ipfs"
	"weir/internal/store"
	"weir/internal/ucan"
	"weir/internal/weir"
	"weir/internal/work"
)

// proofLasts is how long a proof must be valid when a task is created. It is checked again before the
// upload.
const proofLasts = time.Hour

// openIPFS finds out where uploads to IPFS go.
func (s *server) openIPFS(context.Context) (err error) {
	if s.ipfs, err = s.cfg.IPFSRemote(); err != nil {
		return err
	}
	if s.ipfs.Kind == weir.IPFSKubo {
		s.kubo, err = ipfs.NewKubo(s.ipfs.URL)
	}
	return err
}

// apiIPFS returns what the API needs to know about IPFS.
func (s *server) apiIPFS() api.IPFS {
	return api.IPFS{
		URL:   s.cfg.IPFSURL,
		Local: s.ipfs.Kind == weir.IPFSLocal,
		CheckProof: func(text string) error {
			now := time.Now()
			_, err := s.proof(text, now, now.Add(proofLasts))
			return err
		},
		CheckCopy: s.ownSpace,
	}
}

// workIPFS returns what tasks need to write to IPFS.
func (s *server) workIPFS() work.IPFS {
	o := work.IPFS{Kind: s.ipfs.Kind, Open: s.openSpace, Source: s.ipfsSource}
	if node, ok := s.kubo.(ipfs.Remover); ok {
		o.Unpin = node.Remove
	}
	return o
}

// proof checks that a proof is valid in a period, and lets this service write to its space.
func (s *server) proof(text string, from, until time.Time) (ucan.Proof, error) {
	p, err := ucan.Check(text, ucan.Conditions{Audience: s.did, Now: from, Until: until, Abilities: ucan.UploadAbilities()})
	if err == nil && p.AccountIssued && s.ipfs.Kind != weir.IPFSUCAN {
		err = weir.Errorf(weir.Invalid, "the proof has a delegation from an account (did:mailto), which only the service of the account can verify; "+
			"delegate from the key of the space instead, as storacha space create does")
	}
	return p, err
}

// ownSpace returns an error if this service can't write to a space of its own.
func (s *server) ownSpace() error {
	if s.ipfs.Kind != weir.IPFSUCAN {
		return nil
	}
	return weir.Errorf(weir.Invalid, "this server writes to IPFS through an upload service, which needs a proof from the owner of a space; "+
		"send the file to POST /api/transcode with such a proof instead")
}

// openSpace returns the space for which a task has a proof, or that of this service.
func (s *server) openSpace(text string, created time.Time) (space work.Space, err error) {
	var p ucan.Proof
	if space.DID = s.did; text == "" {
		err = s.ownSpace()
	} else {
		now := time.Now()
		if p, err = s.proof(text, now, now); err != nil {
			if before, e := s.proof(text, created, created); e == nil {
				err = weir.Wrap(weir.Invalid, err, "the proof expired at %s, after the task was created; make one that is valid for longer, and send the request again",
					before.Expires.UTC().Format(time.RFC3339))
			}
		}
		space.DID = p.Space
	}
	space.Remote = func(uploadID string) (ipfs.Remote, error) {
		switch s.ipfs.Kind {
		case weir.IPFSKubo:
			return s.kubo, nil
		case weir.IPFSUCAN:
			return ipfs.NewService(s.ipfs.URL, s.ipfs.DID, s.identity, p), nil
		}
		return ipfs.NewLocal(s.media, s.store, uploadID), nil
	}
	return space, err
}

// ipfsSource returns the reader of ipfs:// sources of an owner. Each has its own, because it keeps what it
// has read.
func (s *server) ipfsSource(owner weir.Owner) func(ctx context.Context, cid, path string) (blob.Content, error) {
	source := &ipfs.Source{Blocks: s.blocks(), Gateways: s.gateways(), Guard: s.guard, May: func(ctx context.Context, id string) error {
		u, err := s.upload(ctx, id)
		if err == nil && u.AssetID != "" && (u.UserID != owner.UserID || u.ProjectID != owner.ProjectID) {
			err = weir.ErrNotFound()
		}
		return err
	}}
	return source.Open
}

func (s *server) blocks() *ipfs.Blocks {
	blocks := ipfs.NewBlocks(s.media, s.store)
	blocks.Log = s.logger("ipfs")
	return blocks
}

// upload returns an upload that is complete and whose owner is not suspended.
func (s *server) upload(ctx context.Context, id string) (weir.IPFSUpload, error) {
	u, err := s.store.IPFSUpload(ctx, id)
	if err != nil {
		return u, err
	}
	owner, err := s.store.User(ctx, u.UserID)
	if err == nil && (!u.Complete || u.Deleted || owner.Suspended || owner.Disabled) {
		err = weir.ErrNotFound()
	}
	return u, err
}

// routeIPFS adds the gateway and the endpoint for the owners of spaces.
func (s *server) routeIPFS(mux *http.ServeMux) {
	gateway := ipfs.NewGateway(s.blocks(), s.mayRead, s.onIPFSHost)
	mux.Handle("/ipfs/", s.bounded(hasNoKey, s.ipfsHandler("/ipfs/{path}", gateway)))
	mux.Handle("POST /ucan", s.bounded(hasNoKey, s.ipfsHandler("/ucan", ipfs.Invocations(s.identity, spaces{s.store, s.cfg}))))
}

// onIPFSHost reports whether a request came to the host that serves nothing but uploads to IPFS.
func (s *server) onIPFSHost(r *http.Request) bool {
	host := s.cfg.IPFSHost()
	if host == "" {
		return false
	}
	u, err := url.Parse(endpoint.RequestBase(r, s.cfg.TrustedProxies))
	return err == nil && strings.EqualFold(u.Hostname(), host)
}

// separate hides all but the gateway on the host for uploads to IPFS. Scripts in uploads run there.
func (s *server) separate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.onIPFSHost(r) && !strings.HasPrefix(r.URL.Path, "/ipfs/") {
			refuse(w, weir.Errorf(weir.NotFound, "not found: this host serves uploads to IPFS, below /ipfs/"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// requestKey is the key of the request in the context of mayRead.
type requestKey struct{}

// mayRead returns nil if the request of the context may read an upload: everybody may read the outputs
// of tasks, and those who may play an asset its copy.
func (s *server) mayRead(ctx context.Context, id string) error {
	u, err := s.upload(ctx, id)
	if err != nil || u.AssetID == "" {
		return err
	}
	a, err := s.store.Asset(ctx, u.AssetID)
	if err != nil {
		return err
	}
	if p := a.PlaybackPolicy; p.Private() || p != nil && len(p.AllowedOrigins) > 0 {
		ipfs.Private(ctx)
	}
	r, ok := ctx.Value(requestKey{}).(*http.Request)
	if !ok {
		return weir.ErrNotFound()
	}
	return s.playback.MayPlay(r, a.PlaybackID, weir.Secret(r.URL.Query().Get("token")))
}

// ipfsHandler gives next the request in its context, and bounds how long a client may take to read.
func (s *server) ipfsHandler(route string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		out := &endpoint.Response{ResponseWriter: w, Request: r, Timeout: readTimeout}
		out.Header().Set("Cross-Origin-Resource-Policy", "cross-origin")
		next.ServeHTTP(out, r.WithContext(context.WithValue(r.Context(), requestKey{}, r)))
		out.End()
		s.metrics.observe(r.Context(), r.Method+" "+route, out.Status(), time.Since(start))
	})
}

// readTimeout is how long a client may take to read what is written at once.
const readTimeout = time.Minute

// spaces lets the owners of spaces list and remove their uploads.
type spaces struct {
	store *store.Store
	cfg   *config.Config
}

func (s spaces) List(ctx context.Context, space, cursor string, size int) ([]weir.IPFSUpload, string, error) {
	page, err := s.store.CompleteIPFSUploads(ctx, store.Query{
		Where: []store.Filter{{ID: "space", Value: space}}, Order: "createdAt-false", Cursor: cursor, Limit: size,
	})
	return page.Items, page.Next, err
}

func (s spaces) Remove(ctx context.Context, space, root string) error {
	return s.store.Tx(ctx, func(tx *store.Tx) error {
		return tx.RemoveFromSpace(ctx, space, root, weir.NewEventBatch(s.cfg.EventBase(), time.Now()))
	})
}
