package c2pa

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/fxamacker/cbor/v2"

	"weir/internal/weir"
)

// Content is what a manifest says about a file or a set of tracks.
type Content struct {
	Title     string // the name of what is signed
	Generator string // the program that made it
	Version   string // of the program
	When      time.Time

	// Source is what it was made from: a file, or a stream.
	Source *Source

	// Steps say what was done with the source.
	Steps []Step

	// Tracks are what belongs together, so that Manifest.Tracks shows what is missing. Nil = what is
	// signed is whole by itself.
	Tracks *Tracks

	// About is what else is known, such as the profile; empty values are left out.
	About map[string]string
}

// Source is the parent ingredient of a manifest.
type Source struct {
	Title  string
	Format string // a MIME type; "" = not known
	ID     string // identifies these bytes: "" = a new id

	Description string    // for people; "" = nothing is known beside the title
	Opened      time.Time `json:",omitzero"` // when work on it began; zero = when it is signed

	// Manifest is the result of ReadManifest, if the source is signed itself.
	Manifest *SourceManifest
}

// Step is an action of C2PA.
type Step string

// Steps.
const (
	Transcoded Step = "c2pa.transcoded"
	Trimmed    Step = "c2pa.trimmed"    // a part of the source
	Repackaged Step = "c2pa.repackaged" // frames as they were

	stepOpened  Step = "c2pa.opened"
	stepCreated Step = "c2pa.created"
)

// Labels of assertions.
const (
	labelActions    = "c2pa.actions.v2"
	labelIngredient = "c2pa.ingredient.v3"
	labelHash       = "c2pa.hash.bmff.v3"
	labelAbout      = "weir.output"
	labelTracks     = "weir.tracks"
)

// action is an entry of the assertion of actions.
type action struct {
	Action     string         `cbor:"action"`
	When       cbor.Tag       `cbor:"when"`
	Parameters map[string]any `cbor:"parameters,omitempty"`
}

type actions struct {
	Actions []action `cbor:"actions"`
}

// claim is the part of a manifest that is signed.
type claim struct {
	InstanceID string    `cbor:"instanceID"`
	Generator  generator `cbor:"claim_generator_info"`
	Signature  string    `cbor:"signature"`
	Created    []link    `cbor:"created_assertions"`
	Gathered   []link    `cbor:"gathered_assertions,omitempty"`
	Title      string    `cbor:"dc:title,omitempty"`
	Alg        string    `cbor:"alg,omitempty"`
}

type generator struct {
	Name    string `cbor:"name"`
	Version string `cbor:"version,omitempty"`
}

// draft is a manifest without the assertion that binds the media.
type draft struct {
	Content
	id, instance string // of the manifest and of what is signed
	source       string // id of the source
}

// newDraft begins a manifest. It is an error if the certificate is not valid any more, or if the
// content has no source: nothing begins in weir, and what a camera or a program did is not known
// here.
func (s *Signer) newDraft(c Content) (draft, error) {
	if end := s.chain[0].NotAfter; c.When.After(end) {
		return draft{}, weir.Errorf(weir.Unavailable, "outputs can't be signed: the C2PA certificate of this service expired on %s", end.Format(time.DateOnly))
	}
	if c.Source == nil {
		return draft{}, weir.Errorf(weir.Internal, "a manifest for %q has no source", c.Title)
	}
	d := draft{Content: c, id: "urn:c2pa:" + newUUID(), instance: "xmp:iid:" + newUUID(), source: c.Source.ID}
	if d.source == "" {
		d.source = "xmp:iid:" + newUUID()
	}
	return d, nil
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// store returns the manifest store. binding is the content of the assertion with the hashes of the
// media; sign returns the signature of a claim.
func (d draft) store(binding any, sign func(claim []byte) ([]byte, error)) ([]byte, error) {
	var boxes [][]byte
	var links []link
	add := func(label string, content any) link {
		b := cborBox(label, content)
		l := linkTo(label, b)
		boxes, links = append(boxes, b), append(links, l)
		return l
	}
	add(labelHash, binding)
	parameters := object{"ingredients": []link{add(labelIngredient, d.ingredient())}}
	add(labelActions, d.actions(parameters))
	if about := d.about(); len(about) > 0 {
		add(labelAbout, about)
	}
	if d.Tracks != nil {
		add(labelTracks, d.Tracks)
	}
	claimed := encode(claim{
		InstanceID: d.instance, Generator: generator{d.Generator, d.Version}, Title: d.Title, Alg: "sha256",
		Signature: address + "/" + labelStore + "/" + d.id + "/" + labelSignature, Created: links,
	})
	signature, err := sign(claimed)
	if err != nil {
		return nil, err
	}
	manifest := superbox(kindManifest, d.id,
		superbox(kindAssertions, labelAssertions, boxes...),
		superbox(kindClaim, labelClaim, box("cbor", claimed)),
		superbox(kindSignature, labelSignature, box("cbor", signature)))
	if d.Source.Manifest != nil {
		return superbox(kindStore, labelStore, append(d.Source.Manifest.boxes(), manifest)...), nil
	}
	return superbox(kindStore, labelStore, manifest), nil
}

// actions returns what was done. The first action says that the source was opened.
func (d draft) actions(parameters object) actions {
	opened := d.Source.Opened
	if opened.IsZero() {
		opened = d.When
	}
	all := []action{{Action: string(stepOpened), When: timeTag(opened), Parameters: parameters}}
	for _, s := range d.Steps {
		all = append(all, action{Action: string(s), When: timeTag(d.When), Parameters: parameters})
	}
	return actions{all}
}

func timeTag(t time.Time) cbor.Tag {
	return cbor.Tag{Number: 0, Content: t.UTC().Format(time.RFC3339)}
}

func (d draft) ingredient() object {
	o := object{"dc:title": d.Source.Title, "relationship": "parentOf", "instanceID": d.source}
	if d.Source.Format != "" {
		o["dc:format"] = d.Source.Format
	}
	if d.Source.Description != "" {
		o["description"] = d.Source.Description
	}
	if m := d.Source.Manifest; m != nil {
		m.describe(o)
	}
	return o
}

func (d draft) about() object {
	o := object{}
	for name, value := range d.About {
		if value != "" {
			o[name] = value
		}
	}
	return o
}
