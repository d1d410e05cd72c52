package weir

import (
	"net/url"
	"path"
	"strings"
	"time"
	"unicode"
)

// NewTranscode is the body that requests renditions of a file in the caller's own storage.
type NewTranscode struct {
	Input                 TranscodePlace   `json:"input"`
	Storage               TranscodePlace   `json:"storage"`
	Outputs               TranscodeOutputs `json:"outputs"`
	Profiles              *[]Profile       `json:"profiles"`
	TargetSegmentSizeSecs float64          `json:"targetSegmentSizeSecs"`
	CreatorID             *CreatorID       `json:"creatorId"`
	C2PA                  bool             `json:"c2pa"`
	Text                  *bool            `json:"text"` // nil = true
}

// TranscodePlace is where a file is read from or written to: a URL, a bucket and its credentials, an
// object store, or a space on IPFS with the proof that weir may write there.
type TranscodePlace struct {
	Type          string `json:"type"`
	URL           string `json:"url"` // of an object store too, which the caller has read
	Endpoint      string `json:"endpoint"`
	Bucket        string `json:"bucket"`
	Path          string `json:"path"`
	ObjectStoreID string `json:"objectStoreId"`
	Credentials   struct {
		AccessKeyID     string `json:"accessKeyId"`
		SecretAccessKey Secret `json:"secretAccessKey"`
		Proof           Secret `json:"proof"`
	} `json:"credentials"`
}

// Task returns the task. It is pending, because the check of the destination needs the network.
func (n NewTranscode) Task(caller *Caller, now time.Time) (Task, error) {
	input, err := n.Input.url("input")
	if err != nil {
		return Task{}, err
	}
	t := newTask(TaskTranscode, caller, now)
	storage, err := n.Storage.destination(&t.Secrets)
	if err != nil {
		return Task{}, err
	}
	if err := n.Outputs.clean(); err != nil {
		return Task{}, err
	}
	t.Params.Transcode = &TranscodeParams{
		Input: URLParam{MaskURL(input)}, Storage: URLParam{storage}, Outputs: n.Outputs, CreatorID: n.CreatorID, C2PA: n.C2PA,
		TargetSegmentSizeSecs: segmentSeconds(n.TargetSegmentSizeSecs),
	}
	if n.Text != nil && !*n.Text {
		t.Params.Transcode.Text = n.Text
	}
	if t.Params.Transcode.Input.URL != input {
		t.Secrets.InputURL = input
	}
	if n.Profiles != nil {
		if len(*n.Profiles) == 0 {
			return Task{}, Errorf(Invalid, "profiles: name at least one, or leave it out for a ladder that fits the source")
		}
		if err := CheckFileProfiles(*n.Profiles); err != nil {
			return Task{}, err
		}
		t.Params.Transcode.Profiles = *n.Profiles
	}
	return t, nil
}

// Provenance says that a file was signed, and by whom.
type Provenance struct {
	Path            string `json:"path,omitempty"` // the file, or the playlist of the segments
	Signed          bool   `json:"signed"`
	ManifestID      string `json:"manifestId"`
	Alg             string `json:"alg"`
	CertFingerprint string `json:"certFingerprint"` // SHA-256 of the certificate of the signer
}

// segmentSeconds returns the requested duration of segments, in whole seconds from 2 to 20;
// 0 = none was requested.
func segmentSeconds(requested float64) int {
	if requested <= 0 {
		return 0
	}
	return int(min(max(requested, 2), 20) + 0.5)
}

// spaceScheme begins the URL of a space on IPFS.
const spaceScheme = "w3s://"

// destination puts the credentials of a place for outputs into secrets, and returns its URL with stars
// for them.
func (p TranscodePlace) destination(secrets *TaskSecrets) (shown string, err error) {
	if p.Type != "web3.storage" {
		secrets.StorageURL, err = p.url("storage")
		return withoutUser(secrets.StorageURL), err
	}
	secrets.Proof = p.Credentials.Proof.Reveal()
	if strings.TrimSpace(secrets.Proof) == "" {
		return "", Errorf(Invalid, "storage.credentials.proof: is empty; delegate a space to the DID of GET /api/did, and send the delegation")
	}
	return spaceScheme + mask + "@/", nil
}

// url returns a place as one URL with its credentials.
func (p TranscodePlace) url(name string) (string, error) {
	if p.Endpoint == "" {
		if err := checkSourceURL(name+".url", p.URL); err != nil {
			return "", err
		}
		return p.URL, nil
	}
	u, err := url.Parse(p.Endpoint)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return "", Errorf(Invalid, "%s.endpoint: write it as https://host, without user, path or query", name)
	}
	if p.Bucket == "" || strings.ContainsFunc(p.Bucket, func(r rune) bool { return r <= ' ' || strings.ContainsRune(`/\?#`, r) }) {
		return "", Errorf(Invalid, "%s.bucket: is not the name of a bucket", name)
	}
	if p.Credentials.AccessKeyID == "" || p.Credentials.SecretAccessKey == "" {
		return "", Errorf(Invalid, "%s.credentials: accessKeyId and secretAccessKey are both needed", name)
	}
	place := url.URL{
		Scheme: "s3+" + u.Scheme, Host: u.Host, Path: "/" + p.Bucket,
		User: url.UserPassword(p.Credentials.AccessKeyID, p.Credentials.SecretAccessKey.Reveal()),
	}
	if name == "input" {
		key := strings.TrimPrefix(p.Path, "/")
		if key == "" {
			return "", Errorf(Invalid, "input.path: name the object in the bucket")
		}
		place.Path += "/" + key
	}
	return place.String(), nil
}

// checkSourceURL checks the URL of a source. field is its name in the request.
func checkSourceURL(field, raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || strings.HasSuffix(strings.ToLower(u.Hostname()), ".local") {
		return Errorf(Invalid, "%s: give an address that can be fetched: https://host/path, ipfs://cid or ar://id", field)
	}
	return nil
}

// clean normalizes the paths of the outputs: they start with a slash and do not end with one,
// except for the root.
func (o *TranscodeOutputs) clean() error {
	if o.HLS == nil && o.MP4 == nil && o.FMP4 == nil {
		return Errorf(Invalid, "outputs: ask for at least one of hls, mp4 and fmp4")
	}
	for name, p := range map[string]**PathParam{"hls": &o.HLS, "mp4": &o.MP4, "fmp4": &o.FMP4} {
		if *p == nil {
			continue
		}
		raw := (*p).Path
		if len(raw) > 512 || strings.ContainsFunc(raw, unicode.IsControl) || strings.Contains("/"+raw+"/", "/../") {
			return Errorf(Invalid, "outputs.%s.path: can't be a folder in a bucket; at most 512 bytes, no control characters, no ..", name)
		}
		*p = &PathParam{Path: path.Join("/", raw)}
	}
	return nil
}
