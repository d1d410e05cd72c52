package weir

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// mask replaces a credential.
const mask = "***"

// queryParameter is a parameter of a URL with a value.
var queryParameter = regexp.MustCompile(`([?&;])([^?&;#=]+)=[^&;#]+`)

// MaskURL returns a URL with stars for its user and password and for parameters that are
// credentials, such as the signature of a presigned URL. A URL without them is returned as it is.
func MaskURL(raw string) string {
	return queryParameter.ReplaceAllStringFunc(withoutUser(raw), func(found string) string {
		parts := queryParameter.FindStringSubmatch(found)
		name, err := url.QueryUnescape(parts[2])
		if err == nil && !isCredential(name) {
			return found
		}
		return parts[1] + parts[2] + "=" + mask
	})
}

// isCredential reports whether a query parameter is a credential, judged by its name.
func isCredential(name string) bool {
	name = strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == '.' {
			return -1
		}
		return r
	}, strings.ToLower(name))
	within := func(word string) bool { return strings.Contains(name, word) }
	return slices.Contains([]string{"sig", "sign", "auth", "pass", "pwd", "jwt", "hmac", "sas", "hdnts", "hdnea"}, name) ||
		strings.HasSuffix(name, "key") ||
		slices.ContainsFunc([]string{"signature", "token", "credential", "secret", "password", "passwd", "authorization", "accesskey", "accessid"}, within)
}

// withoutCredentials returns the part of a URL that everybody may see: the query may be a
// signature.
func withoutCredentials(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return mask
	}
	if u.RawQuery != "" {
		u.RawQuery = mask
	}
	u.Fragment, u.RawFragment = "", ""
	return withoutUser(u.String())
}

// withoutUser returns a URL with stars for its user and password. A URL without them is returned as
// it is.
func withoutUser(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return mask
	}
	if u.User == nil {
		return raw
	}
	u.User = nil
	return strings.Replace(u.String(), "://", "://***:***@", 1) // url.URL would escape the stars
}
