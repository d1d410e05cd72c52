package account

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"weir/internal/budget"
	"weir/internal/endpoint"
	"weir/internal/weir"
)

//go:embed pages
var pageFiles embed.FS

// pages is the account area in the browser, beside the console: plain HTML without scripts that
// loads nothing from other sites. Each page is a file in pages/ inside layout.html.
type pages struct {
	*Accounts
	mux         *http.ServeMux
	templates   map[string]*template.Template
	assets      map[string]asset
	crossOrigin *http.CrossOriginProtection
}

// asset is a file that pages refer to.
type asset struct {
	content []byte
	kind    string
	version string // changes with the content
}

// pageRequest is one request for a page.
type pageRequest struct {
	*http.Request
	w       http.ResponseWriter
	session *session // nil = not logged in
	secure  bool     // the browser uses HTTPS
	id      string   // of the request, for the log
}

// page answers a request, or returns the error that answers it.
type page func(req *pageRequest) error

// Pages returns the handler of the account area.
func (a *Accounts) Pages() http.Handler { return a.pages }

func newPages(a *Accounts) (*pages, error) {
	p := &pages{Accounts: a, mux: http.NewServeMux(), templates: map[string]*template.Template{}, assets: map[string]asset{}, crossOrigin: http.NewCrossOriginProtection()}
	if a.opt.PublicURL != "" {
		u, err := url.Parse(a.opt.PublicURL)
		if err != nil {
			return nil, err
		}
		if err := p.crossOrigin.AddTrustedOrigin(u.Scheme + "://" + u.Host); err != nil {
			return nil, err
		}
	}
	if err := p.readFiles(); err != nil {
		return nil, err
	}
	for pattern, show := range map[string]page{
		"GET /{$}":             p.requireLogIn(p.showStart),
		"GET /login":           p.showLogIn,
		"POST /login":          p.logIn,
		"POST /logout":         p.requireLogIn(p.logOut),
		"GET /signup":          p.showSignUp,
		"POST /signup":         p.signUp,
		"GET /set-password":    p.showSetPassword,
		"POST /set-password":   p.setPassword,
		"GET /account":         p.requireLogIn(p.showAccount),
		"POST /account":        p.requireLogIn(p.changePassword),
		"GET /_account/{name}": p.showAsset,
		"/":                    p.unknown,
	} {
		serve := func(req *pageRequest) error { return p.serve(req, show) }
		p.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { p.handle(w, r, serve, p.showError) })
	}
	p.mux.HandleFunc("POST /session/token", func(w http.ResponseWriter, r *http.Request) {
		p.handle(w, r, p.createSessionToken, p.writeError)
	})
	return p, nil
}

// readFiles reads the templates and assets that are built into the program.
func (p *pages) readFiles() error {
	err := fs.WalkDir(pageFiles, "pages", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) == ".html" {
			return err
		}
		content, err := pageFiles.ReadFile(name)
		if err != nil {
			return err
		}
		kinds := map[string]string{".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
		sum := sha256.Sum256(content)
		p.assets[path.Base(name)] = asset{content, kinds[path.Ext(name)], hex.EncodeToString(sum[:6])}
		return nil
	})
	if err != nil {
		return err
	}
	layout, err := template.New("layout.html").Funcs(template.FuncMap{
		"moment": moment,
		"asset":  func(root, name string) string { return root + "_account/" + name + "?v=" + p.assets[name].version },
	}).ParseFS(pageFiles, "pages/layout.html", "pages/parts.html")
	if err != nil {
		return err
	}
	files, err := fs.Glob(pageFiles, "pages/*.html")
	if err != nil {
		return err
	}
	for _, name := range files {
		if path.Base(name) == "layout.html" || path.Base(name) == "parts.html" {
			continue
		}
		t, err := template.Must(layout.Clone()).ParseFS(pageFiles, name)
		if err != nil {
			return err
		}
		p.templates[strings.TrimSuffix(path.Base(name), ".html")] = t
	}
	return nil
}

// moment returns a time as HTML.
func moment(m weir.Millis) template.HTML {
	if m == 0 {
		return "never"
	}
	t := m.Time()
	return template.HTML(fmt.Sprintf(`<time datetime="%s">%s</time>`, t.Format(time.RFC3339), t.Format("2 Jan 2006, 15:04 MST")))
}

// ServeHTTP answers a request for a page.
func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.mux.ServeHTTP(w, r) }

const (
	maxForm     = 64 << 10
	formTimeout = 20 * time.Second
	// writeTimeout is how long a browser may take to read what is written at once.
	writeTimeout = 30 * time.Second
)

// policy lets browsers load only our own files, run no scripts, and show pages in no frame.
const policy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// newRequest returns a request for a page, before its session is known.
func (p *pages) newRequest(w http.ResponseWriter, r *http.Request) *pageRequest {
	req := &pageRequest{Request: r, w: w, id: weir.NewID()[:8]}
	base := endpoint.RequestBase(r, p.opt.TrustedProxies)
	if _, rest, _ := strings.Cut(p.opt.PublicURL, "://"); strings.HasPrefix(rest+"/", r.Host+"/") {
		base = p.opt.PublicURL // behind a proxy that sends no X-Forwarded-Proto
	}
	req.secure = strings.HasPrefix(base, "https://")
	return req
}

// handle answers a request with serve, and its error with fail.
func (p *pages) handle(w http.ResponseWriter, r *http.Request, serve page, fail func(*pageRequest, error)) {
	start := time.Now()
	out := &endpoint.Response{ResponseWriter: w, Request: r, Timeout: writeTimeout}
	req := p.newRequest(out, r)
	h := out.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // not no-referrer: forms would come without their origin
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	endpoint.Never.Set(h)
	if err := serve(req); err != nil {
		fail(req, err)
	}
	out.End()
	// Never the path or the query: they can have tokens in them.
	attrs := [...]slog.Attr{
		slog.String("route", r.Pattern), slog.Int("status", out.Status()), slog.Duration("took", time.Since(start)),
		slog.String("request", req.id), slog.String("user", req.user()),
	}
	p.log.LogAttrs(r.Context(), slog.LevelInfo, "page", attrs[:]...)
}

func (req *pageRequest) user() string {
	if req.session == nil {
		return ""
	}
	return req.session.user.ID
}

// serve reads the form and finds the session, then shows the page. Two checks make sure that a form
// comes from a page of ours: the headers of the browser, and for a session the value that only its
// pages know.
func (p *pages) serve(req *pageRequest, show page) (err error) {
	if req.session, err = p.session(req.Request, req.secure); err != nil {
		return err
	}
	if req.session != nil {
		budget.Authenticated(req.Context())
	}
	if req.Method != http.MethodPost {
		return show(req)
	}
	if err := p.crossOrigin.Check(req.Request); err != nil {
		return errForeignForm()
	}
	_ = http.NewResponseController(req.w).SetReadDeadline(time.Now().Add(formTimeout))
	req.Body = http.MaxBytesReader(req.w, req.Body, maxForm)
	if err := req.ParseForm(); err != nil {
		return weir.Wrap(weir.Refused, err, "The form could not be read. Please go back and send it again.")
	}
	for _, values := range req.PostForm {
		for _, value := range values {
			if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
				return weir.Errorf(weir.Refused, "The form has characters that are not valid text. Please go back and send it again.")
			}
		}
	}
	if req.session != nil && !req.session.ownsForm(req.PostForm.Get("form")) {
		return errForeignForm()
	}
	return show(req)
}

func errForeignForm() error {
	return weir.Errorf(weir.Denied, "This form is out of date or came from another site, so nothing was done. Please go back, reload the page and send it again.")
}

// requireLogIn shows a page only to users who have logged in.
func (p *pages) requireLogIn(show page) page {
	return func(req *pageRequest) error {
		if req.session == nil {
			redirect(req.w, logInAddress(req.Request))
			return nil
		}
		return show(req)
	}
}

// redirect sends the browser to another page. to is relative to the start page.
func (req *pageRequest) redirect(to string) error {
	redirect(req.w, root(req.Request)+"./"+to)
	return nil
}

// view is the data of a template.
type view struct {
	Title  string
	User   *weir.User
	Form   string // the value that forms send back
	Notice string // what was done
	Error  string // what to correct
	Signup bool
	Root   string // before the address of another page
	Data   any
}

// notices are messages after an action; ?done= has the name.
var notices = map[string]string{
	"changed": "Your password is changed. All other log-ins of this account have ended.",
	"out":     "You are logged out.",
}

// render shows a template.
func (p *pages) render(req *pageRequest, status int, name string, in view) error {
	in.Signup, in.Root = p.opt.Signup, root(req.Request)
	if req.session != nil {
		in.User, in.Form = &req.session.user, req.session.form
	}
	if in.Notice == "" && in.Error == "" {
		in.Notice = notices[req.URL.Query().Get("done")]
	}
	var buf bytes.Buffer
	if err := p.templates[name].Execute(&buf, in); err != nil {
		return err
	}
	req.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	req.w.WriteHeader(status)
	_, _ = req.w.Write(buf.Bytes()) // an error means that the browser has disconnected
	return nil
}

// isServerError reports whether the user can't do anything about an error.
func isServerError(err error) bool {
	return weir.KindOf(err).Status() >= http.StatusInternalServerError
}

// showAgain shows a form once more, with an error that the user can correct. It returns other errors.
func (p *pages) showAgain(req *pageRequest, name string, in view, err error) error {
	e, ok := errors.AsType[*weir.Error](err)
	if !ok || isServerError(err) {
		return err
	}
	endpoint.SetRetryAfter(req.w.Header(), e.RetryAfter)
	in.Error = sentence(strings.Join(e.Messages, " "))
	return p.render(req, e.Kind.Status(), name, in)
}

// sentence turns a message of the API into a sentence for a page.
func sentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[size:]
	if !strings.HasSuffix(text, ".") && !strings.Contains(text, "://") && !strings.Contains(text, "/:") {
		text += "."
	}
	return text
}

// showError answers with an error and logs it.
func (p *pages) showError(req *pageRequest, err error) {
	status, in := http.StatusInternalServerError, view{Title: "Something went wrong"}
	e, ok := errors.AsType[*weir.Error](err)
	switch {
	case ok && e.Kind == weir.NotFound:
		status, in = http.StatusNotFound, view{Title: "There is nothing here", Data: "The address may be mistyped, or what was here is gone."}
	case ok && !isServerError(err):
		status, in = e.Kind.Status(), view{Title: "That did not work", Data: strings.Join(e.Messages, " ")}
	case req.Context().Err() != nil: // the browser has disconnected
		return
	default:
		p.log.ErrorContext(req.Context(), "page failed", "route", req.Pattern, "request", req.id, "err", err)
		in.Data = "This is our fault, not yours. If it happens again, tell the operator of this server to look for request " + req.id + " in the log."
	}
	if err := p.render(req, status, "error", in); err != nil {
		p.log.ErrorContext(req.Context(), "page failed", "route", req.Pattern, "request", req.id, "err", err)
		http.Error(req.w, "Something went wrong.", http.StatusInternalServerError)
	}
}

// unknown answers unknown paths.
func (p *pages) unknown(*pageRequest) error { return weir.ErrNotFound() }

// showAsset answers GET /_account/{name}.
func (p *pages) showAsset(req *pageRequest) error {
	a, ok := p.assets[req.PathValue("name")]
	if !ok {
		return weir.ErrNotFound()
	}
	h := req.w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("ETag", `"`+a.version+`"`)
	endpoint.For(time.Hour).Set(h)
	if req.URL.Query().Get("v") == a.version {
		endpoint.Immutable.Set(h)
	}
	http.ServeContent(req.w, req.Request, "", time.Time{}, bytes.NewReader(a.content))
	return nil
}
