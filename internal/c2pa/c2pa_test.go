package c2pa

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var now = time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)

func newSigner(t testing.TB) (*Signer, Chain) {
	t.Helper()
	return newSignerAt(t, now)
}

func newSignerAt(t testing.TB, now time.Time) (*Signer, Chain) {
	t.Helper()
	chain, err := NewChain(now)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSigner(chain.Key, chain.Cert, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, chain
}

// initSegment returns an init segment of a track; content makes it differ from others.
func initSegment(content string) []byte {
	tkhd := make([]byte, 84)
	binary.BigEndian.PutUint32(tkhd[12:], 1)
	return slices.Concat(box("ftyp", []byte("iso6\x00\x00\x00\x00iso6")),
		box("moov", box("trak", box("tkhd", tkhd)), box("free", []byte(content))))
}

func mp4File() []byte {
	return slices.Concat(initSegment("x"), box("mdat", []byte("frames of a film")))
}

func segment(n int) (head, rest []byte) {
	return box("styp", []byte("msdh\x00\x00\x00\x00msdh")), slices.Concat(box("moof", box("mfhd", make([]byte, 7), []byte{byte(n)})), box("mdat", fmt.Appendf(nil, "frames of segment %d", n)))
}

func content() Content {
	return Content{
		Title: "720p", Generator: "weir", Version: "1.0", When: now, Source: &Source{Title: "film.mov", Format: "video/quicktime"},
		Steps: []Step{Transcoded}, About: map[string]string{"profile": "720p", "creatorId": ""},
	}
}

// signFile signs a file as a caller does.
func signFile(t testing.TB, s *Signer, file []byte, c Content) []byte {
	t.Helper()
	f, err := s.File(c)
	if err != nil {
		t.Fatal(err)
	}
	blank, err := Insert(file, f.Blank())
	if err != nil {
		t.Fatal(err)
	}
	h := NewHash()
	for i := 0; i < len(blank); i += 7 { // continued again and again
		if _, err := h.WriteAt(blank[max(0, i-3):min(i+7, len(blank))], int64(max(0, i-3))); err != nil {
			t.Fatal(err)
		}
		state, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		h = new(Hash)
		if err := json.Unmarshal(state, h); err != nil {
			t.Fatal(err)
		}
	}
	sum, err := h.Sum()
	if err != nil {
		t.Fatal(err)
	}
	box, signed, err := f.Sign(t.Context(), sum)
	if err != nil {
		t.Fatal(err)
	}
	if by := s.Summary(); !signed.Signed || signed.Alg != by.Alg || signed.CertFingerprint != by.Fingerprint {
		t.Errorf("signed %+v by %+v", signed, by)
	}
	out, err := Insert(file, box)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func verifyFile(t testing.TB, file []byte, o Options) Report {
	t.Helper()
	r, err := Verify(bytes.NewReader(file), int64(len(file)), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestFile(t *testing.T) {
	t.Parallel()
	s, chain := newSigner(t)
	if r := verifyFile(t, mp4File(), Options{Now: now}); r.State != Unsigned {
		t.Errorf("a file without a manifest is %s", r.State)
	}
	file := signFile(t, s, mp4File(), content())
	if r := verifyFile(t, file, Options{Now: now}); r.State != Valid {
		t.Fatalf("not valid: %+v", r)
	}
	r := verifyFile(t, file, Options{Now: now, Trust: chain.Root})
	if r.State != Trusted {
		t.Fatalf("not trusted: %+v", r)
	}
	by := s.Summary()
	want := &Manifest{
		ID: r.Manifest.ID, Title: "720p", Generator: "weir 1.0", Signer: &by,
		Actions:     []Action{{Action: "c2pa.opened", When: "2026-11-18T12:00:00Z"}, {Action: "c2pa.transcoded", When: "2026-11-18T12:00:00Z"}},
		Ingredients: []Ingredient{{Title: "film.mov", Format: "video/quicktime", Relationship: "parentOf"}},
		About:       map[string]string{"profile": "720p"},
	}
	if diff := cmp.Diff(want, r.Manifest); diff != "" {
		t.Error(diff)
	}
	late := content()
	late.When = now.AddDate(11, 0, 0)
	if _, err := s.File(late); err == nil || !strings.Contains(err.Error(), "expired on 2036-11-18") {
		t.Errorf("signing with an expired certificate: %v", err)
	}
	if r := verifyFile(t, file, Options{Now: now.AddDate(11, 0, 0)}); r.State != Invalid || r.Problems[0].Code != codeCredentialExpired {
		t.Errorf("with an expired certificate it is %+v", r)
	}
	if _, other := newSigner(t); verifyFile(t, file, Options{Now: now, Trust: other.Root}).State != Valid {
		t.Error("trusted because of another root")
	}
}

// No byte of a file can be changed, except for those of its ftyp box and of the padding of boxes.
func TestChangedFile(t *testing.T) {
	t.Parallel()
	s, _ := newSigner(t)
	file := signFile(t, s, mp4File(), content())
	ftyp := int(binary.BigEndian.Uint32(file))
	uuidHead := ftyp + 8 + 16 + 4 + len(purposeManifest) + 1 + 8 // version, flags and offset
	for i := ftyp; i < len(file); i++ {
		if i >= ftyp+24 && i < uuidHead {
			continue
		}
		changed := bytes.Clone(file)
		changed[i] ^= 1
		r, err := Verify(bytes.NewReader(changed), int64(len(changed)), Options{Now: now})
		if err == nil && (r.State == Valid || r.State == Trusted) {
			t.Errorf("byte %d of %d changed, and the file is %s: %q", i, len(file), r.State, file[i-8:i+8])
		}
	}
	for n := ftyp; n < len(file); n++ {
		if r := verifyFile(t, file[:n], Options{Now: now}); r.State == Valid {
			t.Errorf("cut to %d bytes, and it is valid", n)
		}
	}
	if r := verifyFile(t, append(file, box("free", nil)...), Options{Now: now}); r.State != Invalid {
		t.Errorf("longer, and it is %s", r.State)
	}
}

func TestAlgorithms(t *testing.T) {
	t.Parallel()
	for alg, key := range keys(t) {
		chain, err := newChain(key, now, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewSigner(chain.Key, slices.Concat(chain.Cert, chain.Root), now, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := verifyFile(t, signFile(t, s, mp4File(), content()), Options{Now: now, Trust: chain.Root})
		if r.State != Trusted || r.Manifest.Signer.Alg != alg {
			t.Errorf("%s: %s by %+v %+v", alg, r.State, r.Manifest.Signer, r.Problems)
		}
	}
}

// keys returns a key for each algorithm.
func keys(t testing.TB) map[string]crypto.Signer {
	t.Helper()
	all := map[string]crypto.Signer{}
	for alg, curve := range map[string]elliptic.Curve{"es256": elliptic.P256(), "es384": elliptic.P384(), "es512": elliptic.P521()} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		all[alg] = key
	}
	for alg, bits := range map[string]int{"ps256": 2048, "ps384": 3072, "ps512": 4096} {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			t.Fatal(err)
		}
		all[alg] = key
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	all["ed25519"] = key
	return all
}

func TestUnfitSigner(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good, err := newChain(key, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewChain(now)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*x509.Certificate)) []byte {
		chain, err := newChain(key, now, change)
		if err != nil {
			t.Fatal(err)
		}
		return chain.Cert
	}
	tests := []struct {
		name      string
		key, cert []byte
		want      string
	}{
		{"good", good.Key, good.Cert, ""},
		{"no key", good.Cert, good.Cert, "not a private key"},
		{"no certificate", good.Key, good.Key, "no certificate"},
		{"another key", other.Key, good.Cert, "not that of the key"},
		{"root first", good.Key, slices.Concat(good.Root, good.Cert), "not that of the key"},
		{"another root", good.Key, slices.Concat(good.Cert, other.Root), "not signed by the one after it"},
		{"expired", good.Key, with(func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) }), "expired on 2026-11-18"},
		{"early", good.Key, with(func(c *x509.Certificate) { c.NotBefore = now.Add(time.Hour) }), "not valid before"},
		{"authority", good.Key, with(func(c *x509.Certificate) { c.IsCA = true }), "is a CA certificate"},
		{"usage", good.Key, with(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment }), "not for digital signatures"},
		{"TLS", good.Key, with(func(c *x509.Certificate) {
			c.ExtKeyUsage, c.UnknownExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, nil
		}), "another purpose"},
		{"any", good.Key, with(func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageAny) }), "any purpose"},
		{"documents", good.Key, with(func(c *x509.Certificate) {
			c.ExtKeyUsage, c.UnknownExtKeyUsage = nil, []asn1.ObjectIdentifier{documentSigning}
		}), ""},
	}
	for _, tt := range tests {
		_, err := NewSigner(tt.key, tt.cert, now, nil)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// signedTracks returns signed tracks, each an init segment and segments.
func signedTracks(t testing.TB, s *Signer, depth int, counts ...int) (inits [][]byte, segments [][][]byte) {
	t.Helper()
	var trees []*Tree
	for i, count := range counts {
		init := initSegment(fmt.Sprint("track ", i))
		tree, err := NewTree(i+1, init, count)
		if err != nil {
			t.Fatal(err)
		}
		tree.Depth = depth
		var list [][]byte
		for from := 0; from < count; from += tree.Group() {
			size := min(tree.Group(), count-from)
			var leaves [][]byte
			for n := range size {
				head, rest := segment(100*i + from + n)
				h := NewHash()
				for _, data := range [][]byte{head, tree.Blank(n, size), rest} {
					if _, err := h.Write(data); err != nil {
						t.Fatal(err)
					}
				}
				sum, err := h.Sum()
				if err != nil {
					t.Fatal(err)
				}
				leaves = append(leaves, sum)
			}
			for n, box := range tree.Add(leaves) {
				head, rest := segment(100*i + from + n)
				list = append(list, slices.Concat(head, box, rest))
			}
		}
		trees, inits, segments = append(trees, tree), append(inits, init), append(segments, list)
	}
	box, _, err := s.Fragments(t.Context(), content(), trees, inits)
	if err != nil {
		t.Fatal(err)
	}
	for i := range inits {
		if inits[i], err = Insert(inits[i], box); err != nil {
			t.Fatal(err)
		}
	}
	return inits, segments
}

func TestFragments(t *testing.T) {
	t.Parallel()
	s, chain := newSigner(t)
	for depth := range 5 {
		for count := 1; count < 20; count++ {
			inits, segments := signedTracks(t, s, depth, count, 3)
			for i, init := range inits {
				f := VerifyInit(init, Options{Now: now, Trust: chain.Root})
				for n, data := range segments[i] {
					at, ok, err := f.Segment("", bytes.NewReader(data), int64(len(data)))
					if at != n || !ok || err != nil {
						t.Fatalf("depth %d, segment %d of %d: at %d, %t, %v", depth, n, count, at, ok, err)
					}
				}
				if r := f.Report(); r.State != Trusted || f.Count() != len(segments[i]) {
					t.Fatalf("depth %d, %d segments: %+v", depth, count, r)
				}
			}
		}
	}
}

func TestChangedFragments(t *testing.T) {
	t.Parallel()
	s, _ := newSigner(t)
	inits, segments := signedTracks(t, s, 1, 4, 4)
	_, foreign := signedTracks(t, s, 1, 5, 4)
	flip := func(data []byte, i int) []byte {
		data = bytes.Clone(data)
		data[i] ^= 1
		return data
	}
	plain, rest := segment(1)
	tests := []struct {
		name     string
		init     []byte
		segments [][]byte
		want     string // "" = valid
	}{
		{"as signed", inits[0], segments[0], ""},
		{"one of them", inits[0], segments[0][2:3], ""},
		{"flipped", inits[0], [][]byte{flip(segments[0][0], len(segments[0][0])-1)}, "the segment was changed after it was signed"},
		{"of another track", inits[0], segments[1], "of another track"},
		{"foreign", inits[0], foreign[0][4:], "the segment was changed"},
		{"twice", inits[0], [][]byte{segments[0][1], segments[0][1]}, "is there twice"},
		{"unsigned", inits[0], [][]byte{slices.Concat(plain, rest)}, "the segment is not signed"},
		{"two fragments", inits[0], [][]byte{slices.Concat(segments[0][0], rest)}, "each must be one"},
		{"init", flip(inits[0], len(inits[0])-3), segments[0], "the init segment was changed"},
		{"init of the other", inits[1], segments[0], "of another track"},
	}
	for _, tt := range tests {
		f := VerifyInit(tt.init, Options{Now: now})
		for _, data := range tt.segments {
			if _, _, err := f.Segment("segment", bytes.NewReader(data), int64(len(data))); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
		r := f.Report()
		if (r.State == Valid) != (tt.want == "") || tt.want != "" && (len(r.Problems) == 0 || !strings.Contains(r.Problems[0].Explanation, tt.want)) {
			t.Errorf("%s: %s %+v, want %q", tt.name, r.State, r.Problems, tt.want)
		}
	}
}

func TestTreeDepth(t *testing.T) {
	t.Parallel()
	for expected, depth := range map[int]int{0: 0, 1: 0, 256: 0, 257: 1, 512: 1, 514: 2, 3600: 4} {
		tree, err := NewTree(1, initSegment(""), expected)
		if err != nil {
			t.Fatal(err)
		}
		if tree.Depth != depth {
			t.Errorf("%d segments: depth %d, want %d", expected, tree.Depth, depth)
		}
	}
}

// A source that is signed itself stays in what is made from it.
// A file that ends too early is damaged. It is not called unsigned, even if nothing of its manifest
// is left.
func TestTruncated(t *testing.T) {
	t.Parallel()
	s, _ := newSigner(t)
	file := signFile(t, s, mp4File(), content())
	for size := len(file) - 1; size > 0; size -= 11 {
		r := verifyFile(t, file[:size], Options{Now: now})
		whole := size >= len(file)-len(box("mdat", []byte("frames of a film")))
		switch atBox := size == 20; {
		case size < 20 || atBox: // not even ftyp is there, or nothing but it
		case r.State != Invalid || len(r.Problems) != 1 || !strings.HasPrefix(r.Problems[0].Explanation, "the file is damaged: "):
			t.Errorf("%d of %d bytes: %+v", size, len(file), r)
		case whole && r.Manifest == nil:
			t.Errorf("%d of %d bytes: who signed it is not said", size, len(file))
		}
	}
	if r := verifyFile(t, []byte("this is a text, not a film"), Options{Now: now}); r.State != Unsigned || len(r.Problems) != 1 {
		t.Errorf("a text: %+v", r)
	}
	twice, err := Insert(file, file[20:20+int(binary.BigEndian.Uint32(file[20:]))])
	if err != nil {
		t.Fatal(err)
	}
	if r := verifyFile(t, twice, Options{Now: now}); r.State != Invalid {
		t.Errorf("with two manifests: %+v", r)
	}
}

// A key on another curve is well-formed: it is neither encrypted nor damaged.
func TestOtherKeys(t *testing.T) {
	t.Parallel()
	secp256k1, x448 := asn1.ObjectIdentifier{1, 3, 132, 0, 10}, asn1.ObjectIdentifier{1, 3, 101, 111}
	der := func(v any) []byte {
		t.Helper()
		data, err := asn1.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	type pkcs8 struct {
		Version   int
		Algorithm pkix.AlgorithmIdentifier
		Key       []byte
	}
	sec1 := der(ecKey{Version: 1, Key: make([]byte, 32), Curve: secp256k1})
	const other, unreadable = "C2PA does not allow such keys; use ECDSA", "is not a private key in PEM that weir can read"
	for _, tt := range []struct {
		kind string
		der  []byte
		want string
	}{
		{"EC PRIVATE KEY", sec1, other},
		{"PRIVATE KEY", der(pkcs8{0, pkix.AlgorithmIdentifier{Algorithm: ecPublicKey, Parameters: asn1.RawValue{FullBytes: der(secp256k1)}}, sec1}), other},
		{"PRIVATE KEY", der(pkcs8{0, pkix.AlgorithmIdentifier{Algorithm: x448}, make([]byte, 58)}), other},
		{"PRIVATE KEY", []byte("no DER"), unreadable},
		{"ENCRYPTED PRIVATE KEY", der(pkcs8{}.Algorithm.Parameters.Bytes), unreadable},
	} {
		_, err := readKey(pem.EncodeToMemory(&pem.Block{Type: tt.kind, Bytes: tt.der}))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.kind, err, tt.want)
		}
	}
}

// from returns what is said about something that was made from a signed source.
func from(t *testing.T, source []byte) Content {
	t.Helper()
	read, err := ReadSource(bytes.NewReader(source), int64(len(source)), Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	c := content()
	c.Source.Manifest = read
	return c
}

// A source that was valid when it was used stays that, although its certificate expires. The old
// form of ingredients has another place for its results.
func TestSourceResults(t *testing.T) {
	t.Parallel()
	s, chain := newSigner(t)
	c := from(t, signFile(t, s, mp4File(), content()))
	late := now.AddDate(20, 0, 0)
	young, youngChain := newSignerAt(t, late)
	c.When = late
	if r := verifyFile(t, signFile(t, young, mp4File(), c), Options{Now: late, Trust: slices.Concat(chain.Root, youngChain.Root)}); r.State != Trusted {
		t.Errorf("the certificate of the source expired later: %+v", r)
	}
	for _, tt := range []struct {
		found []SourceFound
		want  int
	}{
		{[]SourceFound{{Code: codeUntrusted, Kind: "failure"}}, 0}, // as others write it
		{[]SourceFound{{Code: codeSignatureValidated, Kind: "success"}}, 0},
		{[]SourceFound{{Code: codeHashMismatch, Kind: "failure"}, {Code: codeUntrusted, Kind: "failure"}}, 1},
	} {
		c.Source.Manifest.Results = tt.found
		r := verifyFile(t, signFile(t, young, mp4File(), c), Options{Now: late, Trust: youngChain.Root})
		if got := r.Manifest.Ingredients[0].Problems; len(got) != tt.want || (r.State == Tainted) != (tt.want > 0) {
			t.Errorf("%+v: %s, %+v", tt.found, r.State, got)
		}
	}
	old := []oldFound{{Code: codeHashMatch}, {Code: codeSignatureValidated}, {Code: codeUntrusted}, {Code: codeHashMismatch, URL: "there"}}
	if got := (ingredientResults{Old: old}).problems(); len(got) != 1 || got[0].Where != "there" {
		t.Errorf("the old form: %+v", got)
	}
}

func TestSignedSource(t *testing.T) {
	t.Parallel()
	s, chain := newSigner(t)
	first := signFile(t, s, mp4File(), content())
	flipped := bytes.Clone(first)
	flipped[len(flipped)-1] ^= 1
	for _, tt := range []struct {
		name   string
		source []byte
		state  State
		codes  []string // of the problems of the source
	}{
		{"as it was signed", first, Trusted, nil},
		{"changed", flipped, Tainted, []string{codeHashMismatch}},
		{"cut off", first[:len(first)-3], Tainted, []string{codeHashMismatch}},
		{"made from one that was changed", signFile(t, s, mp4File(), from(t, flipped)), Tainted, nil},
	} {
		source := tt.source
		read, err := ReadSource(bytes.NewReader(source), int64(len(source)), Options{Now: now})
		if err != nil || read == nil {
			t.Fatalf("%v %v", read, err)
		}
		data, err := json.Marshal(read)
		if err != nil {
			t.Fatal(err)
		}
		again := new(SourceManifest)
		if err := json.Unmarshal(data, again); err != nil {
			t.Fatal(err)
		}
		c := content()
		c.Source.Manifest = again
		r := verifyFile(t, signFile(t, s, mp4File(), c), Options{Now: now, Trust: chain.Root})
		if r.State != tt.state || len(r.Problems) > 0 != (tt.state == Tainted) || len(r.Manifest.Ingredients) != 1 || r.Manifest.Ingredients[0].Manifest == nil {
			t.Fatalf("%s: %+v", tt.name, r)
		}
		inner := r.Manifest.Ingredients[0].Manifest
		if want := verifyFile(t, source, Options{Now: now}).Manifest; inner.ID != want.ID || len(inner.Problems) > 0 {
			t.Errorf("%s: the ingredient is %+v", tt.name, inner)
		}
		var codes []string
		for _, p := range r.Manifest.Ingredients[0].Problems {
			codes = append(codes, p.Code)
		}
		if diff := cmp.Diff(tt.codes, codes); diff != "" {
			t.Errorf("%s: the problems of the source (-want +got):\n%s", tt.name, diff)
		}
	}
	if read, err := ReadSource(bytes.NewReader(mp4File()), int64(len(mp4File())), Options{Now: now}); read != nil || err != nil {
		t.Errorf("a source without a manifest: %v %v", read, err)
	}
}

// BenchmarkHash measures the hash of a file, which is nearly all that signing costs.
func BenchmarkHash(b *testing.B) {
	file := slices.Concat(initSegment("x"), box("mdat", make([]byte, 64<<20)))
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		h := NewHash()
		if _, err := bytes.NewReader(file).WriteTo(h); err != nil {
			b.Fatal(err)
		}
		if _, err := h.Sum(); err != nil {
			b.Fatal(err)
		}
	}
}
