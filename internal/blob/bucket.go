package blob

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"weir/internal/weir"
)

// bucket is the parsed URL of a bucket. key and secret must not be shown.
type bucket struct {
	secure      bool
	host        string // with port
	region      string
	key, secret string
	name        string
	prefix      string // "" or a path in the bucket, without slashes around it
}

// howToWrite ends the errors about a storage URL. They don't repeat the URL, which contains the
// secret.
const howToWrite = "write it as s3+https://key:secret@host/bucket, with key and secret percent-encoded"

func parseBucket(raw string) (bucket, error) {
	// Not the error of url.Parse: it repeats the URL.
	u, err := url.Parse(raw)
	if err != nil {
		return bucket{}, weir.Errorf(weir.Invalid, "the URL of the storage can't be read; %s", howToWrite)
	}
	b := bucket{host: u.Host, secure: true}
	switch u.Scheme {
	case "s3":
		if u.Host == "" || strings.ContainsAny(u.Host, ".:[]") {
			return bucket{}, weir.Errorf(weir.Invalid, "after s3:// comes the name of a region, like eu-west-1; for other servers %s", howToWrite)
		}
		b.region, b.host = u.Host, "s3."+u.Host+".amazonaws.com"
	case "s3+http":
		b.secure = false
	case "s3+https":
	default:
		return bucket{}, weir.Errorf(weir.Invalid, "the storage must be s3+https, s3+http or s3; %s", howToWrite)
	}
	if u.Hostname() == "" || strings.Contains(u.Host, "%") {
		return bucket{}, weir.Errorf(weir.Invalid, "the URL of the storage has no host; %s", howToWrite)
	}
	if b.region == "" {
		b.region = regionOf(u.Hostname())
	}
	secret, ok := u.User.Password()
	b.key, b.secret = u.User.Username(), secret
	if !ok || b.key == "" || b.secret == "" {
		return bucket{}, weir.Errorf(weir.Invalid, "the URL of the storage has no key and secret; %s", howToWrite)
	}
	b.name, b.prefix, _ = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	b.prefix = strings.TrimSuffix(b.prefix, "/")
	if b.name == "" {
		return bucket{}, weir.Errorf(weir.Invalid, "the URL of the storage has no bucket; %s", howToWrite)
	}
	if b.name == "." || b.name == ".." || strings.ContainsAny(b.name, "\\?#") {
		return bucket{}, weir.Errorf(weir.Invalid, "%q is not the name of a bucket; %s", b.name, howToWrite)
	}
	// url.Parse accepts hosts for s3+http that it refuses for http, like ::.
	if _, err := url.Parse(b.base()); err != nil {
		return bucket{}, weir.Errorf(weir.Invalid, "%q is not the host of a storage; %s", b.host, howToWrite)
	}
	return b, nil
}

// regionOf guesses the region from the name of a host: s3.eu-west-1.amazonaws.com. Servers without
// regions accept any.
func regionOf(host string) string {
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	if _, err := netip.ParseAddr(host); err == nil || len(labels) < 4 || labels[1] == "" {
		return "us-east-1"
	}
	return labels[1]
}

func (b bucket) object(key string) string {
	if b.prefix == "" {
		return key
	}
	return b.prefix + "/" + key
}

// base returns the URL of the bucket and its prefix, without credentials.
func (b bucket) base() string {
	scheme := "http"
	if b.secure {
		scheme = "https"
	}
	u := url.URL{Scheme: scheme, Host: b.host, Path: strings.TrimSuffix("/"+b.name+"/"+b.prefix, "/")}
	return u.String()
}

// minCredential is the length from which on a credential is masked: a shorter one may be a common
// word.
const minCredential = 6

// hide masks the credentials in a text from another server, unless they are part of a longer word.
func (b bucket) hide(text string) string {
	for _, credential := range []string{b.secret, b.key} {
		if len(credential) < minCredential {
			continue
		}
		for start := 0; ; {
			at := strings.Index(text[start:], credential)
			if at < 0 {
				break
			}
			at += start
			before, after := text[:at], text[at+len(credential):]
			if oneWord(before, credential) || oneWord(credential, after) {
				start = at + 1
				continue
			}
			text, start = before+"***"+after, at+len("***")
		}
	}
	return text
}

// oneWord reports whether the first text ends within a word that the second continues.
func oneWord(first, second string) bool {
	isWord := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	last, _ := utf8.DecodeLastRuneInString(first)
	next, _ := utf8.DecodeRuneInString(second)
	return isWord(last) && isWord(next)
}

// String keeps the credentials out of logs.
func (b bucket) String() string { return b.base() }

func (b bucket) GoString() string { return fmt.Sprintf("bucket(%s)", b.base()) }

// baseURL returns the address that the keys of a bucket are relative to,
// https://host/bucket, without credentials; "" if the URL is not that of a bucket.
func baseURL(storageURL string) string {
	b, err := parseBucket(storageURL)
	if err != nil {
		return ""
	}
	return b.base()
}
