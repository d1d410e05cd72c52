package c2pa

import (
	"crypto/sha256"
	"io"
	"slices"
	"strings"
)

// SourceManifest is the manifest store of a source that is signed itself, and the result of its
// validation. It goes into the manifests of what is made from the source. It may be stored as JSON.
type SourceManifest struct {
	Store   []byte        `json:"store"`
	Results []SourceFound `json:"results"`
}

// SourceFound is one result of the validation of a source.
type SourceFound struct {
	Code        string `json:"code" cbor:"code"`
	URL         string `json:"url,omitempty" cbor:"url,omitempty"`
	Explanation string `json:"explanation,omitempty" cbor:"explanation,omitempty"`
	Kind        string `json:"kind" cbor:"-"` // success, informational or failure
}

// maxSourceStore bounds the manifest store of a source that is kept: it is in every init segment.
const maxSourceStore = 512 << 10

// ReadSource returns the manifest of a source; nil = it has none that can be kept.
func ReadSource(file io.ReaderAt, size int64, o Options) (*SourceManifest, error) {
	v, _, err := verify(file, size, o)
	if err != nil {
		return nil, err
	}
	return v.source(), nil
}

// Source returns the manifest of the track for what is made from it, with the results for the
// segments so far; nil = it has none that can be kept.
func (f *Fragments) Source() *SourceManifest { return f.validation.source() }

func (v *validation) source() *SourceManifest {
	if v == nil || len(v.store.whole) > maxSourceStore {
		return nil
	}
	m := &SourceManifest{Store: v.store.whole}
	for _, f := range v.all {
		kind := "failure"
		switch {
		case f.good:
			kind = "success"
		case f.info:
			kind = "informational"
		}
		m.Results = append(m.Results, SourceFound{f.Code, f.Where, f.Explanation, kind})
	}
	return m
}

// ingredientResults is what an ingredient says about the validation of its manifest, at the time
// when it was used.
type ingredientResults struct {
	New *struct {
		Active results `cbor:"activeManifest"`
		Deltas []struct {
			Results results `cbor:"validationDeltas"`
		} `cbor:"ingredientDeltas"`
	} `cbor:"validationResults"`
	Old []oldFound `cbor:"validationStatus"` // of the versions before
}

type results struct {
	Failure []SourceFound `cbor:"failure"`
}

// oldFound is a result whose kind only its code tells.
type oldFound SourceFound

// problems returns why the ingredient was invalid. That its signer was not known is no such reason.
func (r ingredientResults) problems() (list []Problem) {
	var failures []SourceFound
	if r.New != nil {
		failures = r.New.Active.Failure
		for _, d := range r.New.Deltas {
			failures = append(failures, d.Results.Failure...)
		}
	}
	for _, f := range r.Old {
		switch _, result, _ := strings.Cut(f.Code, "."); {
		case strings.HasSuffix(result, "match") && !strings.HasSuffix(result, "mismatch"):
		case slices.Contains([]string{"validated", "trusted", "accessible", "notRevoked", "insideValidity"}, result):
		default:
			failures = append(failures, SourceFound(f))
		}
	}
	for _, f := range failures {
		if f.Code != codeUntrusted && f.Code != codeStampUntrusted {
			list = append(list, Problem{f.Code, f.URL, f.Explanation})
		}
	}
	return list
}

// failed reports whether the ingredient, or one of its own, was invalid.
func (i Ingredient) failed() bool {
	if i.Manifest == nil {
		return len(i.Problems) > 0
	}
	return len(i.Problems)+len(i.Manifest.Problems) > 0 || slices.ContainsFunc(i.Manifest.Ingredients, Ingredient.failed)
}

// boxes returns the manifests of the store, which come before those that refer to them.
func (m *SourceManifest) boxes() (list [][]byte) {
	if store, err := readStore(m.Store); err == nil {
		for _, b := range store.inner {
			list = append(list, b.whole)
		}
	}
	return list
}

// describe adds the manifest to the content of an ingredient.
func (m *SourceManifest) describe(ingredient object) {
	store, err := readStore(m.Store)
	if err != nil || len(store.inner) == 0 {
		return
	}
	active := store.inner[len(store.inner)-1]
	where := address + "/" + labelStore + "/" + active.label
	sum := sha256.Sum256(active.hashed())
	ingredient["activeManifest"] = link{URL: where, Hash: sum[:]}
	if s := active.child(labelSignature); s != nil {
		sum := sha256.Sum256(s.hashed())
		ingredient["claimSignature"] = link{URL: where + "/" + labelSignature, Hash: sum[:]}
	}
	results := map[string][]SourceFound{"success": {}, "informational": {}, "failure": {}}
	for _, f := range m.Results {
		results[f.Kind] = append(results[f.Kind], f)
	}
	ingredient["validationResults"] = object{"activeManifest": results}
}
