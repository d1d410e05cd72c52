package account

import (
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"weir/internal/budget"
	"weir/internal/endpoint"
)

// All addresses in pages and redirects are relative, because a proxy may serve weir below a prefix
// that weir does not know.

const (
	maxDepth = 32   // of a path from which pages refer to others
	maxNext  = 2000 // characters of an address to return to after a log-in
)

// root returns the way from the address of a request to the start page: "" or "../" as often as
// the path is deep.
func root(r *http.Request) string {
	return strings.Repeat("../", min(maxDepth, max(0, strings.Count(r.URL.Path, "/")-1)))
}

// redirect sends the browser to a relative address. http.Redirect would make it absolute.
func redirect(w http.ResponseWriter, to string) {
	h := w.Header()
	h.Set("Location", to)
	endpoint.Never.Set(h)
	w.WriteHeader(http.StatusSeeOther)
}

// logInAddress returns the address of the log-in page, which brings the person back to the page of
// the request.
func logInAddress(r *http.Request) string {
	to := root(r) + "login"
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return to // a form can't be sent again
	}
	here := strings.TrimPrefix(r.URL.EscapedPath(), "/")
	if r.URL.RawQuery != "" {
		here += "?" + r.URL.RawQuery
	}
	if here = localAddress(here); here != "" {
		to += "?next=" + url.QueryEscape(here)
	}
	return to
}

// localAddress returns an address that is relative to the start page and below it, or "" if next is
// anything else, such as an address of another site.
func localAddress(next string) string {
	bad := func(r rune) bool { return r == '\\' || unicode.IsControl(r) || r == unicode.ReplacementChar }
	if next == "" || len(next) > maxNext || strings.ContainsFunc(next, bad) {
		return ""
	}
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Opaque != "" || u.Host != "" || u.User != nil {
		return ""
	}
	if strings.HasPrefix(u.Path, "/") || strings.Contains(u.Path, "//") || strings.ContainsFunc(u.Path, bad) {
		return ""
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." || strings.Contains(segment, ":") {
			return ""
		}
	}
	return next
}

// RequireLogIn returns a handler that only people who have logged in on the pages reach; it sends
// others to the log-in page, which brings them back. It is for pages: scripts get a token for the
// API with POST /session/token.
func (a *Accounts) RequireLogIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := a.session(r, a.pages.newRequest(w, r).secure)
		switch {
		case err != nil:
			a.log.ErrorContext(r.Context(), "page failed", "err", err)
			http.Error(w, "Something went wrong.", http.StatusInternalServerError)
		case s == nil:
			redirect(w, logInAddress(r))
		default:
			budget.Authenticated(r.Context())
			next.ServeHTTP(w, r)
		}
	})
}
