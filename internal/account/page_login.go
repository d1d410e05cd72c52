package account

import (
	"errors"
	"net/http"
	"net/netip"

	"weir/internal/endpoint"
	"weir/internal/store"
	"weir/internal/weir"
)

func (p *pages) clientAddr(req *pageRequest) netip.Addr {
	return endpoint.ClientAddr(req.Request, p.opt.TrustedProxies)
}

// showStart answers GET /, where the console is if the program was built with it.
func (p *pages) showStart(req *pageRequest) error { return req.redirect("account") }

// logInData is the data of the log-in page.
type logInData struct {
	Email string
	Next  string // where to go after the log-in; "" = the start page
}

func logInView(email, next string) view { return view{Title: "Log in", Data: logInData{email, next}} }

// showLogIn answers GET /login.
func (p *pages) showLogIn(req *pageRequest) error {
	next := localAddress(req.URL.Query().Get("next"))
	if req.session != nil {
		return req.redirect(next)
	}
	return p.render(req, http.StatusOK, "login", logInView("", next))
}

// logIn answers POST /login.
func (p *pages) logIn(req *pageRequest) error {
	email, next := req.PostForm.Get("email"), localAddress(req.PostForm.Get("next"))
	u, err := p.checkPassword(req.Context(), email, req.PostForm.Get("password"), p.clientAddr(req))
	if err != nil {
		if weir.KindOf(err) == weir.Denied && u.ID == "" {
			err = weir.Errorf(weir.Denied, "The e-mail address or the password is wrong.")
		}
		return p.showAgain(req, "login", logInView(email, next), err)
	}
	if err := p.openSession(req.Context(), req.w, req.secure, u); err != nil {
		return err
	}
	return req.redirect(next)
}

// logOut answers POST /logout.
func (p *pages) logOut(req *pageRequest) error {
	if err := p.closeSession(req.Context(), req.w, req.secure, req.session); err != nil {
		return err
	}
	return req.redirect("login?done=out")
}

func signUpView(email string) view { return view{Title: "Create an account", Data: email} }

// showSignUp answers GET /signup.
func (p *pages) showSignUp(req *pageRequest) error {
	if !p.opt.Signup {
		return weir.ErrNotFound()
	}
	if req.session != nil {
		return req.redirect("")
	}
	return p.render(req, http.StatusOK, "signup", signUpView(""))
}

// signUp answers POST /signup.
func (p *pages) signUp(req *pageRequest) error {
	if !p.opt.Signup {
		return weir.ErrNotFound()
	}
	email, password := req.PostForm.Get("email"), req.PostForm.Get("password")
	if err := checkRepeat(req); err != nil {
		return p.showAgain(req, "signup", signUpView(email), err)
	}
	u, err := p.Register(req.Context(), NewUser{Email: email, Password: password}, p.clientAddr(req))
	if err != nil {
		switch {
		case errors.Is(err, store.ErrDeletedAccount):
			err = weir.Errorf(weir.Conflict, "The account with this e-mail address was deleted a short time ago. Ask the operator of this server to restore it, or use another address.")
		case weir.KindOf(err) == weir.Conflict:
			err = weir.Errorf(weir.Conflict, "There is an account with this e-mail address already. Log in with it.")
		}
		return p.showAgain(req, "signup", signUpView(email), err)
	}
	if err := p.openSession(req.Context(), req.w, req.secure, u); err != nil {
		return err
	}
	return req.redirect("")
}

// checkRepeat checks that both entries of a new password are equal.
func checkRepeat(req *pageRequest) error {
	if req.PostForm.Get("password") != req.PostForm.Get("repeat") {
		return weir.Errorf(weir.Invalid, "The two passwords are not the same. Type them again.")
	}
	return nil
}

// linkData is the data of the set-password page.
type linkData struct {
	Token string
	Email string
	Fixed bool // the account has this e-mail address already
}

func setPasswordView(token string, u weir.User) view {
	d := linkData{Token: token}
	if u.Email != placeholder {
		d.Email, d.Fixed = u.Email, true
	}
	return view{Title: "Set your password", Data: d}
}

// brokenLink shows the page for an invalid link.
func (p *pages) brokenLink(req *pageRequest) error {
	return p.render(req, http.StatusForbidden, "error", view{
		Title: "This link does not work any more",
		Data:  "It was used already, has expired, or a newer one was made. Ask the operator of this server for a new link.",
	})
}

// showSetPassword answers GET /set-password.
func (p *pages) showSetPassword(req *pageRequest) error {
	token := req.URL.Query().Get("token")
	u, err := p.linkUser(req.Context(), weir.Secret(token))
	if weir.KindOf(err) == weir.Denied {
		return p.brokenLink(req)
	}
	if err != nil {
		return err
	}
	return p.render(req, http.StatusOK, "set-password", setPasswordView(token, u))
}

// setPassword answers POST /set-password. It logs the browser in.
func (p *pages) setPassword(req *pageRequest) error {
	token, email := req.PostForm.Get("token"), req.PostForm.Get("email")
	invited, err := p.linkUser(req.Context(), weir.Secret(token))
	if weir.KindOf(err) == weir.Denied {
		return p.brokenLink(req)
	}
	if err != nil {
		return err
	}
	var u weir.User
	err = checkRepeat(req)
	if err == nil {
		u, err = p.SetPassword(req.Context(), weir.Secret(token), email, req.PostForm.Get("password"))
	}
	if err != nil {
		if weir.KindOf(err) == weir.Denied {
			err = weir.Errorf(weir.Denied, "This link is for another e-mail address.")
		}
		in := setPasswordView(token, invited)
		if d := in.Data.(linkData); !d.Fixed {
			d.Email = email
			in.Data = d
		}
		return p.showAgain(req, "set-password", in, err)
	}
	if err := p.openSession(req.Context(), req.w, req.secure, u); err != nil {
		return err
	}
	return req.redirect("")
}

func accountView() view { return view{Title: "Account"} }

// showAccount answers GET /account.
func (p *pages) showAccount(req *pageRequest) error {
	return p.render(req, http.StatusOK, "account", accountView())
}

// changePassword answers POST /account. It ends all log-ins of the account, so it logs this browser
// in again.
func (p *pages) changePassword(req *pageRequest) error {
	err := checkRepeat(req)
	var u weir.User
	if err == nil {
		u, err = p.ChangePassword(req.Context(), req.session.user.ID, req.PostForm.Get("old"), req.PostForm.Get("password"), p.clientAddr(req))
	}
	if err != nil {
		if weir.KindOf(err) == weir.Denied {
			err = weir.Errorf(weir.Denied, "The old password is wrong.")
		}
		return p.showAgain(req, "account", accountView(), err)
	}
	if err := p.openSession(req.Context(), req.w, req.secure, u); err != nil {
		return err
	}
	return req.redirect("account?done=changed")
}
