package ipld

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func mustParse(t testing.TB, text string) CID {
	t.Helper()
	c, err := ParseCID(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The forms of CIDs are those that go-cid writes.
func TestCID(t *testing.T) {
	for _, tt := range []struct {
		codec uint64
		bytes string
		texts []string // the first is the usual one
	}{
		{DagPB, "122059948439065f29619ef41280cbb932be52c56d99c5966b65e0111239f098bbef", []string{"QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn"}},
		{DagPB, "01701220bf63670d89cbe74f493aa42478fbdc49f1b5676f2aadd45e7a78686e58f621a1", []string{
			"bafybeif7mntq3col45husoveer4pxxcj6g2wo3zkvxkf46tynbxfr5rbue", "BAFYBEIF7MNTQ3COL45HUSOVEER4PXXCJ6G2WO3ZKVXKF46TYNBXFR5RBUE",
			"zdj7WiJzrvAsrqFRs7tKKxE8E3d4WtjdyKUMJAsPM4mdzwybE", "k2jmtxw4u38s973dqgfqe0kx61mimtgvttihk55lr22nzw3spctf061t",
			"K2JMTXW4U38S973DQGFQE0KX61MIMTGVTTIHK55LR22NZW3SPCTF061T", "f01701220bf63670d89cbe74f493aa42478fbdc49f1b5676f2aadd45e7a78686e58f621a1",
			"F01701220BF63670D89CBE74F493AA42478FBDC49F1B5676F2AADD45E7A78686E58F621A1", "mAXASIL9jZw2Jy+dPSTqkJHj73EnxtWdvKq3UXnp4aG5Y9iGh",
			"MAXASIL9jZw2Jy+dPSTqkJHj73EnxtWdvKq3UXnp4aG5Y9iGh", "uAXASIL9jZw2Jy-dPSTqkJHj73EnxtWdvKq3UXnp4aG5Y9iGh",
		}},
		{Raw, "0155000c68656c6c6f20776f726c640a", []string{"bafkqaddimvwgy3zao5xxe3debi"}},
		{DagJSON, "01a9021220864249f653cba0b3e8aeb44192a0331febe8ecea88975a19dc41c8b032456560", []string{"baguqeeraqzbet5stzoqlh2fowrazfibtd7v6r3hkrclvugo4ihelamsfmvqa"}},
	} {
		for _, text := range tt.texts {
			c, err := ParseCID(text)
			if got := hex.EncodeToString([]byte(c)); err != nil || got != tt.bytes || c.Codec() != tt.codec || c.String() != tt.texts[0] {
				t.Errorf("%s: %s, %s, codec %x, %v", text, got, c, c.Codec(), err)
			}
		}
	}
}

func TestBadCIDs(t *testing.T) {
	good := mustParse(t, "bafybeif7mntq3col45husoveer4pxxcj6g2wo3zkvxkf46tynbxfr5rbue")
	for name, b := range map[string]string{
		"empty": "", "version": "\x02" + string(good[1:]), "cut off": string(good[:20]), "trailing": string(good) + "x", "long number": "\x81\x00" + string(good[1:]),
		"no hash": "\x01\x70", "hash cut off": "\x01\x70\x12", "cut off, version 0": "\x12\x20abc",
	} {
		if c, err := AsCID([]byte(b)); err == nil {
			t.Errorf("%s: %s", name, c)
		}
	}
	for _, text := range []string{"", "b", "notacid", "z" + strings.Repeat("1", 10000), "Qm" + strings.Repeat("0", 44), "bafybeif7mntq3col45husoveer4pxxcj6g2wo3zkvxkf46tynbxfr5rbu"} {
		if c, err := ParseCID(text); err == nil {
			t.Errorf("%.100q: %s", text, c)
		}
	}
}

func TestVerify(t *testing.T) {
	block := []byte("hello world\n")
	for _, c := range []CID{Sum(Raw, block), mustParse(t, "bafkqaddimvwgy3zao5xxe3debi")} {
		if !c.Verify(block) || c.Verify(block[1:]) {
			t.Error(c)
		}
	}
	v0 := mustParse(t, "QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn")
	if v1 := v0.Version1(); v1.Codec() != DagPB || string(v1.Hash()) != string(v0.Hash()) || v1.Version1() != v1 {
		t.Errorf("%s, %s", v0, v1)
	}
}

// TestBase58 has the vectors of the IETF draft on Base58, and the empty one.
func TestBase58(t *testing.T) {
	for in, want := range map[string]string{
		"":             "",
		"\x00":         "1",
		"Hello World!": "2NEpo7TZRRrLZSi2U",
		"The quick brown fox jumps over the lazy dog.": "USm3fpXnKG5EUBx2ndxBDMPVciP5hGey2Jh4NDv6gmeo1LkMeiKrLJUUBk6Z",
		"\x00\x00\x28\x7f\xb4\xcd":                     "11233QC4",
	} {
		got := Base58([]byte(in))
		if got != want {
			t.Errorf("Base58(%q) = %s, want %s", in, got, want)
		}
		if back, err := decodeBig(got, base58Alphabet); err != nil || string(back) != in {
			t.Errorf("%s = %q, %v", got, back, err)
		}
	}
}

// Values and their only forms: those of RFC 8949, Appendix A, as far as DAG-CBOR has them.
func TestDocuments(t *testing.T) {
	link := mustParse(t, "bafkqaddimvwgy3zao5xxe3debi")
	for _, tt := range []struct {
		value any
		cbor  string
		json  string
	}{
		{int64(0), "00", "0"},
		{int64(23), "17", "23"},
		{int64(24), "1818", "24"},
		{int64(1000), "1903e8", "1000"},
		{int64(1000000), "1a000f4240", "1000000"},
		{int64(1<<63 - 1), "1b7fffffffffffffff", "9223372036854775807"},
		{int64(-1), "20", "-1"},
		{int64(-1000), "3903e7", "-1000"},
		{int64(-1 << 63), "3b7fffffffffffffff", "-9223372036854775808"},
		{1.1, "fb3ff199999999999a", "1.1"},
		{1.0, "fb3ff0000000000000", "1.0"},
		{1e300, "fb7e37e43c8800759c", "1e+300"},
		{-4.1, "fbc010666666666666", "-4.1"},
		{true, "f5", "true"},
		{false, "f4", "false"},
		{nil, "f6", "null"},
		{[]byte{1, 2, 3, 4}, "4401020304", `{"/":{"bytes":"AQIDBA"}}`},
		{"", "60", `""`},
		{"\"\\ü水\b\f\n\r\t\x01\u2028/<", "72225cc3bce6b0b4080c0a0d0901e280a82f3c", "\"\\\"\\\\ü水\\b\\f\\n\\r\\t\\u0001\u2028/<\""},
		{[]any{int64(1), []any{}}, "820180", "[1,[]]"},
		{Map{}, "a0", "{}"},
		{Map{"bb": int64(1), "a": int64(2), "ab": nil, "c": link}, "a46161026163d82a5100" + hex.EncodeToString([]byte(link)) + "626162f662626201", `{"a":2,"ab":null,"bb":1,"c":{"/":"bafkqaddimvwgy3zao5xxe3debi"}}`},
		{link, "d82a5100" + hex.EncodeToString([]byte(link)), `{"/":"bafkqaddimvwgy3zao5xxe3debi"}`},
	} {
		cbor, err := EncodeCBOR(tt.value)
		if err != nil {
			t.Fatal(err)
		}
		js, err := EncodeJSON(tt.value)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(cbor); got != tt.cbor {
			t.Errorf("%v: %s, want %s", tt.value, got, tt.cbor)
		}
		if string(js) != tt.json {
			t.Errorf("%v: %s, want %s", tt.value, js, tt.json)
		}
		for codec, block := range map[uint64][]byte{DagCBOR: cbor, DagJSON: js} {
			back, links, err := Decode(codec, block)
			if err != nil {
				t.Errorf("%v: %v", tt.value, err)
			}
			if diff := cmp.Diff(tt.value, back); diff != "" {
				t.Error(diff)
			}
			if hasLink := bytes.Contains(js, []byte("bafkq")); (len(links) == 1) != hasLink {
				t.Errorf("%s: %d links", js, len(links))
			}
		}
	}
}

// What others may write, and what is no document.
func TestDecode(t *testing.T) {
	for text, want := range map[string]any{
		"1800": int64(0), "f93c00": 1.0, "fa3fc00000": 1.5, "f90001": 5.960464477539063e-8, "f9c400": -4.0, "f97bff": 65504.0,
	} {
		block, _ := hex.DecodeString(text)
		if got, _, err := Decode(DagCBOR, block); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "18", "1c", "1f", "5f", "9f00ff", "bf", "61", "61ff", "8200", "a1", "a10000", "a2616100616100", "c0", "d82a00", "d82a41", "d82a4100", "d82a420001",
		"f7", "f0", "f97c00", "f97e00", "fb7ff8000000000000", "1b8000000000000000", "3b8000000000000000", "0000", "9bffffffffffffffff", "bbffffffffffffffff",
		strings.Repeat("81", maxNesting+2) + "00",
	} {
		block, _ := hex.DecodeString(text)
		if got, _, err := Decode(DagCBOR, block); err == nil {
			t.Errorf("%.100s: %v", text, got)
		}
	}
	for _, text := range []string{
		"", "1 2", "[", `{"a":1,"a":2}`, `{"/":"x"}`, `{"/":{"bytes":1}}`, `{"/":1}`, "99999999999999999999", "\xff", "\"\xff\"", "1e999", strings.Repeat("[", 1000),
	} {
		if got, _, err := Decode(DagJSON, []byte(text)); err == nil {
			t.Errorf("%.100s: %v", text, got)
		}
	}
	// In plain documents nothing is a link.
	if got, links, err := Decode(JSON, []byte(`{"/":"bafkqaddimvwgy3zao5xxe3debi"}`)); err != nil || len(links) > 0 {
		t.Errorf("%v, %v, %v", got, links, err)
	}
	block, _ := EncodeCBOR(mustParse(t, "bafkqaddimvwgy3zao5xxe3debi"))
	if got, _, err := Decode(CBOR, block); err == nil {
		t.Errorf("%v", got)
	}
	if _, _, err := Decode(Raw, []byte("{}")); err == nil {
		t.Error("bytes are a document")
	}
}

func TestCAR(t *testing.T) {
	a, b := []byte("a"), []byte{}
	file := AppendCARHeader(nil, Sum(Raw, a), Sum(DagCBOR, b))
	file = AppendCARBlock(AppendCARBlock(file, Sum(Raw, a), a), Sum(DagCBOR, b), b)
	r, err := NewCARReader(bytes.NewReader(file), 100)
	if err != nil || len(r.Roots) != 2 || r.Roots[1] != Sum(DagCBOR, b) {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, want := range [][]byte{a, b} {
		if c, block, err := r.Next(); err != nil || !bytes.Equal(block, want) || !c.Verify(want) {
			t.Errorf("%s %q %v", c, block, err)
		}
	}
	if _, _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	// Cut off at any byte but those where a block begins.
	whole := 0
	for n := range len(file) {
		r, err := NewCARReader(bytes.NewReader(file[:n]), 100)
		for err == nil {
			_, _, err = r.Next()
		}
		if err == io.EOF {
			whole++
		}
	}
	if whole != 2 {
		t.Errorf("%d files that are cut off are complete", whole)
	}
	for name, file := range map[string]string{
		"version 2":     "\x0a\xa1\x67version\x02",
		"no roots":      "\x0a\xa1\x67version\x01",
		"root is text":  "\x12\xa2\x65roots\x81\x60\x67version\x01",
		"no CID":        string(AppendCARHeader(nil)) + "\x03abc",
		"empty section": string(AppendCARHeader(nil)) + "\x00",
		"large section": string(AppendCARHeader(nil)) + "\x65" + string(AppendCARBlock(nil, Sum(Raw, a), make([]byte, 65))),
		"large header":  "\x81\x80\x04" + strings.Repeat("\x00", 70000),
	} {
		r, err := NewCARReader(strings.NewReader(file), 100)
		if err == nil {
			_, _, err = r.Next()
		}
		if err == nil || err == io.EOF {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzDecode has documents and CAR files. What can be read has one form, which is read as the same.
func FuzzDecode(f *testing.F) {
	document, _ := EncodeCBOR(Map{"a": []any{int64(-1), 1.5, "x", []byte{1}, nil, true}, "l": Sum(Raw, nil)})
	f.Add(document)
	f.Add([]byte(`{"a":[-1,1.5,"x",{"/":{"bytes":"AQ"}}],"l":{"/":"bafkqaddimvwgy3zao5xxe3debi"}}`))
	f.Add(AppendCARBlock(AppendCARHeader(nil, Sum(Raw, nil)), Sum(Raw, nil), nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		for codec, encode := range map[uint64]func(any) ([]byte, error){DagCBOR: EncodeCBOR, DagJSON: EncodeJSON, CBOR: EncodeCBOR, JSON: EncodeJSON} {
			value, _, err := Decode(codec, data)
			if err != nil {
				continue
			}
			form, err := encode(value)
			if err != nil {
				t.Fatalf("%v: %v", value, err)
			}
			again, _, err := Decode(codec, form)
			if diff := cmp.Diff(value, again); err != nil || diff != "" {
				t.Errorf("codec %x: %v %s", codec, err, diff)
			}
		}
		if c, err := AsCID(data); err == nil {
			if again, err := ParseCID(c.String()); err != nil || again != c {
				t.Errorf("%x: %s, %v", data, again, err)
			}
		}
		r, err := NewCARReader(bytes.NewReader(data), 1<<10)
		for err == nil {
			_, _, err = r.Next()
		}
	})
}
