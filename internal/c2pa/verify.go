package c2pa

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"crypto/x509"
	"hash"
	"io"
	"slices"
	"strings"
	"time"

	"weir/internal/weir"
)

// Options are what a validator is told.
type Options struct {
	Trust []byte // root certificates in PEM that the caller trusts; nil = none
	Now   time.Time
}

// State is the result of a validation.
type State string

// States.
const (
	Unsigned State = "unsigned" // there is no manifest
	Invalid  State = "invalid"  // it was changed after signing, or the signature is no good
	Tainted  State = "tainted"  // it is as it was signed, but a source of it was Invalid
	Valid    State = "valid"    // it is as it was signed, by somebody who is not known
	Trusted  State = "trusted"  // it is as it was signed, with a certificate that a trusted root vouches for
)

// Report is what a validator found.
type Report struct {
	State    State     `json:"state"`
	Manifest *Manifest `json:"manifest,omitempty"`
	Problems []Problem `json:"problems,omitempty"` // why it is invalid or tainted
}

// Problem is a reason why something is invalid.
type Problem struct {
	Code        string `json:"code"`            // of the specification
	Where       string `json:"where,omitempty"` // the manifest, assertion or segment
	Explanation string `json:"explanation"`
}

// Manifest is what a manifest says.
type Manifest struct {
	ID          string            `json:"id"`
	Title       string            `json:"title,omitempty"`
	Generator   string            `json:"generator,omitempty"`
	Signer      *Summary          `json:"signer,omitempty"`
	SignedAt    *time.Time        `json:"signedAt,omitempty"` // by a time stamp service
	Actions     []Action          `json:"actions,omitempty"`
	Ingredients []Ingredient      `json:"ingredients,omitempty"`
	About       map[string]string `json:"about,omitempty"`  // what weir added
	Tracks      *Tracks           `json:"tracks,omitempty"` // what belongs together
	Problems    []Problem         `json:"problems,omitempty"`
}

// Action is something that was done, as a manifest says.
type Action struct {
	Action     string `json:"action"`
	When       string `json:"when,omitempty"`
	SourceType string `json:"digitalSourceType,omitempty"`
}

// Ingredient is something that a file was made of.
type Ingredient struct {
	Title        string    `json:"title,omitempty"`
	Format       string    `json:"format,omitempty"`
	Description  string    `json:"description,omitempty"`
	Relationship string    `json:"relationship"`
	Manifest     *Manifest `json:"manifest,omitempty"` // if it was signed itself
	Problems     []Problem `json:"problems,omitempty"` // why it was invalid, as found when it was used
}

// Codes of problems.
const (
	codeClaimMissing       = "claim.missing"
	codeClaimMalformed     = "claim.cbor.invalid"
	codeSignatureMissing   = "claimSignature.missing"
	codeSignatureMismatch  = "claimSignature.mismatch"
	codeSignatureValidated = "claimSignature.validated"
	codeCredentialInvalid  = "signingCredential.invalid"
	codeCredentialExpired  = "signingCredential.expired"
	codeUntrusted          = "signingCredential.untrusted"
	codeTrusted            = "signingCredential.trusted"
	codeAssertionMissing   = "assertion.missing"
	codeAssertionMismatch  = "assertion.hashedURI.mismatch"
	codeAssertionMatch     = "assertion.hashedURI.match"
	codeAssertionExtra     = "assertion.undeclared"
	codeAssertionMalformed = "assertion.cbor.invalid"
	codeActionMalformed    = "assertion.action.malformed"
	codeNoBinding          = "claim.hardBindings.missing"
	codeManyBindings       = "assertion.multipleHardBindings"
	codeHashMalformed      = "assertion.bmffHash.malformed"
	codeHashMismatch       = "assertion.bmffHash.mismatch"
	codeHashMatch          = "assertion.bmffHash.match"
	codeIngredientMissing  = "ingredient.manifest.missing"
	codeIngredientMismatch = "ingredient.manifest.mismatch"
	codeIngredientMatch    = "ingredient.manifest.validated"
	codeStamp              = "timeStamp.mismatch"
	codeStampUntrusted     = "timeStamp.untrusted"
	codeGeneral            = "general.error"

	codeSourceInvalid = "weir.source.invalid" // the specification has none for it
)

// found is one result of a validation.
type found struct {
	Problem
	good, info bool
}

// validation is the validation of one manifest.
type validation struct {
	store    *jumbfBox
	options  Options
	box      *jumbfBox // the manifest
	manifest *Manifest
	trusted  bool
	bindings []binding
	all      []found
	seen     map[string]bool // manifests
	hashed   *int            // bytes, by links
}

func (v *validation) addResult(code, where, explanation string) {
	f := found{Problem: Problem{code, where, explanation}}
	switch code {
	case codeSignatureValidated, codeTrusted, codeAssertionMatch, codeHashMatch, codeIngredientMatch:
		f.good = true
	case codeUntrusted:
		f.info = true
	}
	v.all = append(v.all, f)
	if !f.good && !f.info {
		v.manifest.Problems = append(v.manifest.Problems, f.Problem)
	}
}

// validate validates the active manifest of a store, without the media.
func validate(data []byte, o Options) (*validation, error) {
	store, err := readStore(data)
	if err != nil {
		return nil, err
	}
	var active *jumbfBox
	for _, b := range store.inner {
		if b.kind == kindManifest || b.kind == kindUpdate {
			active = b
		}
	}
	if active == nil {
		return nil, notJUMBF("it has no manifest")
	}
	v := &validation{store: store, options: o, seen: map[string]bool{}, hashed: new(int)}
	v.check(active)
	return v, nil
}

// check validates a manifest.
func (v *validation) check(manifest *jumbfBox) {
	v.box, v.manifest = manifest, &Manifest{ID: manifest.label}
	v.seen[manifest.label] = true
	claimBox, old := manifest.child(labelClaim), false
	if claimBox == nil {
		claimBox, old = manifest.child(labelClaimV1), true
	}
	if claimBox == nil || claimBox.kind != kindClaim {
		v.addResult(codeClaimMissing, manifest.label, "the manifest has no claim")
		return
	}
	c, err := readClaim(claimBox.content, old)
	if err != nil {
		v.addResult(codeClaimMalformed, claimBox.label, err.Error())
		return
	}
	v.manifest.Title, v.manifest.Generator = c.Title, c.generator()
	v.checkSignature(c, claimBox.content)
	v.checkAssertions(c)
}

// readClaim reads a claim, of version 1 if old.
func readClaim(data []byte, old bool) (c claim, err error) {
	if !old {
		return c, decode(data, &c)
	}
	var first struct {
		InstanceID string `cbor:"instanceID"`
		Generator  string `cbor:"claim_generator"`
		Signature  string `cbor:"signature"`
		Assertions []link `cbor:"assertions"`
		Title      string `cbor:"dc:title"`
		Alg        string `cbor:"alg"`
	}
	err = decode(data, &first)
	return claim{
		InstanceID: first.InstanceID, Generator: generator{Name: first.Generator}, Signature: first.Signature,
		Created: first.Assertions, Title: first.Title, Alg: first.Alg,
	}, err
}

func (c claim) generator() string {
	return strings.TrimSpace(c.Generator.Name + " " + c.Generator.Version)
}

// checkSignature checks the signature of the claim, and its certificate.
func (v *validation) checkSignature(c claim, claimed []byte) {
	where := labelSignature
	b := v.box.child(labelSignature)
	if b == nil || b.kind != kindSignature || resolve(v.store, v.box, c.Signature) != b {
		v.addResult(codeSignatureMissing, where, "the manifest has no signature")
		return
	}
	s, err := readSignature(b.content)
	if err != nil {
		v.addResult(codeSignatureMismatch, where, err.Error())
		return
	}
	leaf := s.chain[0]
	by := summary(leaf, s.alg.name)
	v.manifest.Signer = &by
	if err := s.verify(claimed); err != nil {
		v.addResult(codeSignatureMismatch, where, "the claim is not the one that was signed")
		return
	}
	v.addResult(codeSignatureValidated, where, "the claim is the one that was signed")
	at := v.options.Now
	switch stamp, err := s.stamp(v.options.Trust); {
	case err != nil:
		v.addResult(codeStamp, where, err.Error())
	case stamp != nil:
		v.manifest.SignedAt = &stamp.at
		if stamp.trusted { // else anybody could have made it
			at = stamp.at
		}
	}
	if at.Before(leaf.NotBefore) || at.After(leaf.NotAfter) {
		v.addResult(codeCredentialExpired, where, "the certificate of the signer was not valid when it was used, as far as can be proved")
		return
	}
	if err := checkLeaf(leaf, at); err != nil {
		v.addResult(codeCredentialInvalid, where, err.Error())
		return
	}
	if v.trusted = v.trusts(s.chain, at); v.trusted {
		v.addResult(codeTrusted, where, "a trusted root vouches for the signer")
		return
	}
	v.addResult(codeUntrusted, where, "no trusted root vouches for the signer")
}

func (v *validation) trusts(chain []*x509.Certificate, at time.Time) bool {
	return trusts(v.options.Trust, chain, at)
}

// trusts reports whether one of the roots vouches for the first certificate of a chain.
func trusts(trust []byte, chain []*x509.Certificate, at time.Time) bool {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(trust) {
		return false
	}
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err == nil
}

// maxLinks bounds the assertions of a claim.
const maxLinks = 4096

// checkAssertions checks that the assertions are those of the claim, and what they say.
func (v *validation) checkAssertions(c claim) {
	assertions := v.box.child(labelAssertions)
	if assertions == nil || assertions.kind != kindAssertions || len(c.Created)+len(c.Gathered) > maxLinks {
		v.addResult(codeClaimMalformed, v.box.label, "the manifest has no assertions, or too many")
		return
	}
	named := map[*jumbfBox]bool{}
	for _, l := range slices.Concat(c.Created, c.Gathered) {
		b := resolve(v.store, v.box, l.URL)
		switch {
		case b == nil || !slices.Contains(assertions.inner, b):
			v.addResult(codeAssertionMissing, l.URL, "the manifest does not have the assertion")
			continue
		case !v.linked(l, b, c.Alg):
			v.addResult(codeAssertionMismatch, l.URL, "the assertion is not the one that was signed")
			continue
		}
		if !named[b] {
			named[b] = true
			v.addResult(codeAssertionMatch, l.URL, "the assertion is the one that was signed")
			v.readAssertion(b, c.Alg)
		}
	}
	for _, b := range assertions.inner {
		if !named[b] {
			v.addResult(codeAssertionExtra, b.label, "the claim does not have the assertion")
		}
	}
	switch {
	case v.box.kind == kindUpdate:
	case len(v.bindings) == 0:
		v.addResult(codeNoBinding, v.box.label, "the manifest has no hash of an MP4 file")
	case len(v.bindings) > 1:
		v.addResult(codeManyBindings, v.box.label, "the manifest has several hashes of the file")
	}
}

// linked reports whether a link has the hash of a box.
func (v *validation) linked(l link, b *jumbfBox, alg string) bool {
	if l.Alg != "" {
		alg = l.Alg
	}
	h := newSum(alg)
	// Many links to the same box would take long.
	if *v.hashed += len(b.whole); h == nil || *v.hashed > 4*len(v.store.whole) {
		return false
	}
	h.Write(b.hashed())
	return subtle.ConstantTimeCompare(h.Sum(nil), l.Hash) == 1
}

// newSum returns the hash with a name; nil = it is not known.
func newSum(alg string) hash.Hash {
	switch alg {
	case "", "sha256":
		return sha256.New()
	case "sha384":
		return sha512.New384()
	case "sha512":
		return sha512.New()
	}
	return nil
}

// readAssertion reads an assertion. The labels of several assertions of a kind end with a number,
// after two underscores.
func (v *validation) readAssertion(b *jumbfBox, alg string) {
	label, _, _ := strings.Cut(b.label, "__")
	var err error
	switch {
	case label == "c2pa.actions" || label == labelActions:
		err = v.readActions(b)
	case strings.HasPrefix(label, "c2pa.ingredient"):
		err = v.readIngredient(b, alg)
	case strings.HasPrefix(label, "c2pa.hash.bmff"):
		var h binding
		if err = decode(b.content, &h); err == nil {
			if h.Alg == "" {
				h.Alg = alg
			}
			v.bindings = append(v.bindings, h)
		}
	case label == labelTracks:
		var tracks Tracks
		if err = decode(b.content, &tracks); err == nil && len(tracks.All) > maxTracks {
			err = weir.Errorf(weir.Invalid, "it has %d tracks", len(tracks.All))
		}
		if err == nil {
			v.manifest.Tracks = &tracks
		}
	case label == labelAbout:
		var about map[string]string
		if err = decode(b.content, &about); err == nil {
			v.manifest.About = about
		}
	}
	if err != nil {
		v.addResult(codeAssertionMalformed, b.label, err.Error())
	}
}

// readActions reads what was done. The first action must say where the media came from.
func (v *validation) readActions(b *jumbfBox) error {
	var list struct {
		Actions []struct {
			Action     string `cbor:"action"`
			When       any    `cbor:"when"`
			SourceType string `cbor:"digitalSourceType"`
		} `cbor:"actions"`
	}
	if err := decode(b.content, &list); err != nil {
		return err
	}
	for i, a := range list.Actions {
		start := a.Action == string(stepOpened) || a.Action == string(stepCreated)
		if b.label == labelActions && start != (i == 0) {
			v.addResult(codeActionMalformed, b.label, "one action, the first, must be c2pa.opened or c2pa.created")
		}
		v.manifest.Actions = append(v.manifest.Actions, Action{Action: a.Action, When: timeText(a.When), SourceType: a.SourceType})
	}
	if len(list.Actions) == 0 {
		v.addResult(codeActionMalformed, b.label, "it has no action")
	}
	return nil
}

func timeText(v any) string {
	switch v := v.(type) {
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case string:
		return v
	}
	return ""
}

// maxNested bounds how far ingredients of ingredients are followed.
const maxNested = 32

// readIngredient reads an ingredient, and validates its manifest.
func (v *validation) readIngredient(b *jumbfBox, alg string) error {
	var i struct {
		Title        string `cbor:"dc:title"`
		Format       string `cbor:"dc:format"`
		Description  string `cbor:"description"`
		Relationship string `cbor:"relationship"`
		Active       *link  `cbor:"activeManifest"`
		Old          *link  `cbor:"c2pa_manifest"`
		ingredientResults
	}
	if err := decode(b.content, &i); err != nil {
		return err
	}
	ingredient := Ingredient{Title: i.Title, Format: i.Format, Description: i.Description, Relationship: i.Relationship, Problems: i.problems()}
	if i.Active == nil {
		i.Active = i.Old
	}
	if i.Active != nil {
		inner := resolve(v.store, v.box, i.Active.URL)
		switch {
		case inner == nil || inner.kind != kindManifest && inner.kind != kindUpdate:
			v.addResult(codeIngredientMissing, b.label, "the manifest of an ingredient is missing")
		case !v.linked(*i.Active, inner, alg):
			v.addResult(codeIngredientMismatch, b.label, "the manifest of an ingredient is not the one that was signed")
		default:
			v.addResult(codeIngredientMatch, b.label, "the manifest of an ingredient is the one that was signed")
			if !v.seen[inner.label] && len(v.seen) < maxNested {
				nested := &validation{store: v.store, options: v.options, seen: v.seen, hashed: v.hashed}
				nested.check(inner)
				ingredient.Manifest = nested.manifest
				if i.New != nil { // then it says whether the certificate had expired
					ingredient.Manifest.Problems = slices.DeleteFunc(ingredient.Manifest.Problems, func(p Problem) bool { return p.Code == codeCredentialExpired })
				}
			}
		}
	}
	v.manifest.Ingredients = append(v.manifest.Ingredients, ingredient)
	return nil
}

// report returns the result so far.
func (v *validation) report() Report {
	shown := *v.manifest
	shown.Problems = nil
	r := Report{State: Valid, Manifest: &shown, Problems: slices.Clone(v.manifest.Problems)}
	invalid := len(r.Problems) > 0
	for _, i := range shown.Ingredients {
		if i.failed() {
			r.Problems = append(r.Problems, Problem{codeSourceInvalid, i.Title, "the source was changed after it was signed, or its signature was no good"})
		}
	}
	switch {
	case invalid:
		r.State = Invalid
	case len(r.Problems) > 0:
		r.State = Tainted
	case v.trusted:
		r.State = Trusted
	}
	return r
}

// Verify validates a file. An error means that it could not be read.
func Verify(file io.ReaderAt, size int64, o Options) (Report, error) {
	v, r, err := verify(file, size, o)
	if v != nil {
		r = v.report()
	}
	return r, err
}

// verify validates a file. The validation is nil if there is no manifest that can be read.
func verify(file io.ReaderAt, size int64, o Options) (*validation, Report, error) {
	found, err := findManifest(file, size)
	if err != nil || found.store == nil {
		return nil, found.report(), err
	}
	v, err := validate(found.store, o)
	if err != nil {
		return nil, invalid(err), nil
	}
	if found.problem != "" {
		v.addResult(codeHashMismatch, labelHash, found.problem)
		return v, Report{}, nil
	}
	if len(v.bindings) != 1 {
		return v, Report{}, nil
	}
	b := v.bindings[0]
	h, problem := b.hasher()
	switch {
	case problem != "":
		v.addResult(codeHashMalformed, labelHash, problem)
		return v, Report{}, nil
	case len(b.Merkle) > 0:
		v.addResult(codeHashMismatch, labelHash, "this is the init segment of a track; verify it together with its segments")
		return v, Report{}, nil
	}
	if _, err := io.Copy(h, io.NewSectionReader(file, 0, size)); err != nil {
		return v, Report{}, unreadable(err)
	}
	sum, err := h.Sum()
	if err != nil || subtle.ConstantTimeCompare(sum, b.Hash) == 0 {
		v.addResult(codeHashMismatch, labelHash, "the file was changed after it was signed")
		return v, Report{}, nil
	}
	v.addResult(codeHashMatch, labelHash, "the file is as it was signed")
	return v, Report{}, nil
}

func invalid(err error) Report {
	return Report{State: Invalid, Problems: []Problem{{Code: codeGeneral, Explanation: err.Error()}}}
}

// unreadable returns an error of reading, but not one about what was read.
func unreadable(err error) error {
	if weir.KindOf(err) == weir.Invalid {
		return nil
	}
	return err
}

// hasher returns the hash of a binding. The problem says why there is none.
func (b binding) hasher() (h *Hash, problem string) {
	sum := newSum(b.Alg)
	if sum == nil {
		return nil, "the hash " + b.Alg + " is not known"
	}
	var exclude []exclusion
	standard := exclusions()
	for _, x := range b.Exclusions {
		name, ok := strings.CutPrefix(x.XPath, "/")
		if !ok || len(name) != 4 || x.Length != nil || x.Subset != nil || x.Flags != nil || x.Ver != nil {
			return nil, "it excludes parts of boxes, which this validator does not support: " + x.XPath
		}
		e := exclusion{name: name}
		for _, d := range x.Data {
			if d.Offset < 0 || d.Offset+len(d.Value) > headBytes {
				return nil, "it excludes boxes by bytes at offsets that are too large"
			}
			e.data = append(e.data, excludedData{d.Offset, d.Value})
		}
		if name == "mdat" || name == "moov" || name == "moof" || name == "uuid" && !slices.EqualFunc(e.data, standard[0].data, sameData) {
			return nil, "it excludes media: " + x.XPath
		}
		exclude = append(exclude, e)
	}
	return newHash(sum, exclude), ""
}

func sameData(a, b excludedData) bool { return a.offset == b.offset && bytes.Equal(a.value, b.value) }

// foundStore is what was found of the manifest store of a file.
type foundStore struct {
	store   []byte // nil = it has none that can be read
	mp4     bool   // it begins as an MP4 file does
	problem string // what is wrong with the file; "" = nothing
}

// report returns the result for a file without a store. A file that is damaged may have had one.
func (f foundStore) report() Report {
	r := Report{State: Unsigned}
	if f.problem != "" {
		r.Problems = []Problem{{Code: codeGeneral, Explanation: f.problem}}
		if f.mp4 {
			r.State = Invalid
		}
	}
	return r
}

// findManifest returns the manifest store of a file. An error means that it could not be read.
func findManifest(file io.ReaderAt, size int64) (found foundStore, err error) {
	found.store, err = findStore(file, size, &found.mp4)
	if err == nil || unreadable(err) != nil {
		return found, err
	}
	if found.problem = err.Error(); found.mp4 {
		_, what, _ := strings.Cut(found.problem, ": ")
		found.problem = "the file is damaged: " + what
	}
	return found, nil
}

// findStore returns the store of a file, also if the file is damaged after it. mp4 gets whether the
// file begins as an MP4 file does.
func findStore(file io.ReaderAt, size int64, mp4 *bool) (store []byte, err error) {
	err = walk(file, size, func(b rootBox, head []byte) error {
		*mp4 = *mp4 || b.at == 0 && b.name == "ftyp"
		if !exclusions()[0].has(b.name, head) {
			return nil
		}
		if b.size > maxStore {
			return notJUMBF("it is too large: it has %d bytes", b.size)
		}
		body := make([]byte, b.size-b.head)
		if _, err := file.ReadAt(body, b.at+b.head); err != nil && err != io.EOF {
			return err
		}
		purpose, data, ok := readUUIDBox(body)
		switch {
		case !ok || purpose != purposeManifest:
			return nil
		case store != nil:
			store = nil
			return notJUMBF("there are several manifest stores")
		case len(data) < 8:
			return notJUMBF("it is truncated")
		}
		store = data[8:]
		return nil
	})
	return store, err
}
