package playback

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"

	"weir/internal/access"
	"weir/internal/endpoint"
	"weir/internal/weir"
)

// A cache before weir can keep content that is not public, and give it to those who may play it:
//
//   - A viewer's addresses have a token. The cache asks weir whether its viewer may play, at
//     t/<token>/admission, and keeps the response for Options.CacheAdmission.
//   - It fetches what the viewer wants without the token, with a header that proves that it is a cache of
//     the operator, who has set it up to ask first. Such a response is for all viewers.
//
// The files in packaging/cdn do so. Without the proof nothing of the kind is ever public.

// cacheHeader has the proof of a cache. It must never reach a viewer, nor an access webhook.
const cacheHeader = "Weir-Cache"

// cacheSecret is what caches prove themselves with; the zero value = there are none.
type cacheSecret struct {
	set bool
	sum [sha256.Size]byte
}

func newCacheSecret(secret weir.Secret) cacheSecret {
	return cacheSecret{set: secret != "", sum: sha256.Sum256([]byte(secret.Reveal()))}
}

// proves reports whether a request is of a cache. A wrong proof is an error for everything: the operator
// sees at once that the secrets differ.
func (c *cacheSecret) proves(h http.Header) (bool, error) {
	values := h.Values(cacheHeader)
	if len(values) == 0 {
		return false, nil
	}
	sum := sha256.Sum256([]byte(values[0]))
	if !c.set || len(values) > 1 || subtle.ConstantTimeCompare(sum[:], c.sum[:]) != 1 {
		return false, weir.Errorf(weir.Denied, "the header %s does not have the secret of this server; set the cache to that of --cache-secret", cacheHeader)
	}
	return true, nil
}

// forAll reports whether a proven cache asks on behalf of all its viewers: what a viewer's token or
// credential opens is for that viewer.
func (req *request) forAll() bool {
	return req.proven && !req.inPath && !access.HasCredential(req.Request)
}

// shareable reports whether caches may give the response to other viewers.
func (req *request) shareable() bool { return req.title.shared() || req.forAll() }

// admission answers whether the viewer may play, which has been checked.
func (s *Server) admission(w *endpoint.Response, req *request) error {
	caching := endpoint.Never
	// By pages of which origins may play, the cache would have to choose.
	if req.proven && !req.title.restrictsOrigin() {
		caching = endpoint.For(s.CacheAdmission)
	}
	caching.Set(w.Header())
	w.WriteHeader(http.StatusNoContent)
	return nil
}
