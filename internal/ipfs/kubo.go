package ipfs

// NewKubo returns an IPFS node as a Remote, by the URL of its RPC, like http://127.0.0.1:5001. A user
// and password in the URL are sent as basic authentication, a user alone as a bearer token.
func NewKubo(rpcURL string) (Remote, error) { panic("not written yet") }
