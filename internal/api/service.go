package api

import (
	"net/http"

	"weir/internal/weir"
)

// listIngests answers GET /ingest: the URLs for encoders and players.
func (s *server) listIngests(w http.ResponseWriter, r *request) error {
	base := s.base(r.Request)
	ingest := s.Ingest(base)
	if ingest == "" {
		return weir.Errorf(weir.Unavailable, "Ingest not configured")
	}
	response := map[string]any{"ingest": ingest, "playback": base + "/hls", "base": base}
	if s.Ingests != nil {
		response["ingests"] = s.Ingests(base)
	}
	return writeJSON(w, http.StatusOK, []any{response})
}

// getDID answers GET /did: the id of the service on decentralized storage.
func (s *server) getDID(w http.ResponseWriter, _ *request) error {
	return writeJSON(w, http.StatusOK, map[string]string{"did": s.DID})
}

// getC2PARoot answers GET /c2pa/root.pem: the root of the certificate that signs media.
func (s *server) getC2PARoot(w http.ResponseWriter, _ *request) error {
	if s.C2PARoot == nil {
		return weir.Errorf(weir.NotFound, "this server does not have the root certificate; ask its operator, or the authority that issued the certificate")
	}
	w.Header().Set("Content-Type", "application/x-pem-file")
	_, err := w.Write(s.C2PARoot)
	return err
}

// getVersion answers GET /version.
func (s *server) getVersion(w http.ResponseWriter, _ *request) error {
	return writeJSON(w, http.StatusOK, map[string]string{"tag": s.Version, "commit": s.Commit})
}

// getOpenAPIYAML answers GET /openapi.yaml.
func (s *server) getOpenAPIYAML(w http.ResponseWriter, _ *request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, err := w.Write(s.contract.YAML())
	return err
}

// getOpenAPIJSON answers GET /openapi.json.
func (s *server) getOpenAPIJSON(w http.ResponseWriter, _ *request) error {
	w.Header()["Content-Type"] = jsonType
	_, err := w.Write(s.contract.JSON())
	return err
}
