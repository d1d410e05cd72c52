package account

import (
	"errors"
	"net/http"
	"net/netip"

	"weir/internal/endpoint"
	"weir/internal/store"
	"weir/internal/weir"
)

func (p *pages) clientAddr(v *visit) netip.Addr {
	return endpoint.ClientAddr(v.Request, p.opt.TrustedProxies)
}

// showStart answers GET /, where the console is if the program was built with it.
func (p *pages) showStart(v *visit) error { return v.redirect("account") }

// logInData is the data of the log-in page.
type logInData struct {
	Email string
	Next  string // where to go after the log-in; "" = the start page
}

func logInView(email, next string) view { return view{Title: "Log in", Data: logInData{email, next}} }

// showLogIn answers GET /login.
func (p *pages) showLogIn(v *visit) error {
	next := localAddress(v.URL.Query().Get("next"))
	if v.session != nil {
		return v.redirect(next)
	}
	return p.render(v, http.StatusOK, "login", logInView("", next))
}

// logIn answers POST /login.
func (p *pages) logIn(v *visit) error {
	email, next := v.PostForm.Get("email"), localAddress(v.PostForm.Get("next"))
	u, err := p.checkPassword(v.Context(), email, v.PostForm.Get("password"), p.clientAddr(v))
	if err != nil {
		if weir.KindOf(err) == weir.Denied && u.ID == "" {
			err = weir.Errorf(weir.Denied, "The e-mail address or the password is wrong.")
		}
		return p.again(v, "login", logInView(email, next), err)
	}
	if err := p.openSession(v.Context(), v.w, v.secure, u); err != nil {
		return err
	}
	return v.redirect(next)
}

// logOut answers POST /logout.
func (p *pages) logOut(v *visit) error {
	if err := p.closeSession(v.Context(), v.w, v.secure, v.session); err != nil {
		return err
	}
	return v.redirect("login?done=out")
}

func signUpView(email string) view { return view{Title: "Create an account", Data: email} }

// showSignUp answers GET /signup.
func (p *pages) showSignUp(v *visit) error {
	if !p.opt.Signup {
		return weir.ErrNotFound()
	}
	if v.session != nil {
		return v.redirect("")
	}
	return p.render(v, http.StatusOK, "signup", signUpView(""))
}

// signUp answers POST /signup.
func (p *pages) signUp(v *visit) error {
	if !p.opt.Signup {
		return weir.ErrNotFound()
	}
	email, password := v.PostForm.Get("email"), v.PostForm.Get("password")
	if err := repeated(v); err != nil {
		return p.again(v, "signup", signUpView(email), err)
	}
	u, err := p.Register(v.Context(), NewUser{Email: email, Password: password}, p.clientAddr(v))
	if err != nil {
		switch {
		case errors.Is(err, store.ErrDeletedAccount):
			err = weir.Errorf(weir.Conflict, "The account with this e-mail address was deleted a short time ago. Ask the operator of this server to restore it, or use another address.")
		case weir.KindOf(err) == weir.Conflict:
			err = weir.Errorf(weir.Conflict, "There is an account with this e-mail address already. Log in with it.")
		}
		return p.again(v, "signup", signUpView(email), err)
	}
	if err := p.openSession(v.Context(), v.w, v.secure, u); err != nil {
		return err
	}
	return v.redirect("")
}

// repeated checks that both entries of a new password are equal.
func repeated(v *visit) error {
	if v.PostForm.Get("password") != v.PostForm.Get("repeat") {
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
func (p *pages) brokenLink(v *visit) error {
	return p.render(v, http.StatusForbidden, "error", view{
		Title: "This link does not work any more",
		Data:  "It was used already, has expired, or a newer one was made. Ask the operator of this server for a new link.",
	})
}

// showSetPassword answers GET /set-password.
func (p *pages) showSetPassword(v *visit) error {
	token := v.URL.Query().Get("token")
	u, err := p.linkUser(v.Context(), weir.Secret(token))
	if weir.KindOf(err) == weir.Denied {
		return p.brokenLink(v)
	}
	if err != nil {
		return err
	}
	return p.render(v, http.StatusOK, "set-password", setPasswordView(token, u))
}

// setPassword answers POST /set-password. It logs the browser in.
func (p *pages) setPassword(v *visit) error {
	token, email := v.PostForm.Get("token"), v.PostForm.Get("email")
	invited, err := p.linkUser(v.Context(), weir.Secret(token))
	if weir.KindOf(err) == weir.Denied {
		return p.brokenLink(v)
	}
	if err != nil {
		return err
	}
	var u weir.User
	err = repeated(v)
	if err == nil {
		u, err = p.SetPassword(v.Context(), weir.Secret(token), email, v.PostForm.Get("password"))
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
		return p.again(v, "set-password", in, err)
	}
	if err := p.openSession(v.Context(), v.w, v.secure, u); err != nil {
		return err
	}
	return v.redirect("")
}

func accountView() view { return view{Title: "Account"} }

// showAccount answers GET /account.
func (p *pages) showAccount(v *visit) error {
	return p.render(v, http.StatusOK, "account", accountView())
}

// changePassword answers POST /account. It ends all log-ins of the account, so it logs this browser
// in again.
func (p *pages) changePassword(v *visit) error {
	err := repeated(v)
	var u weir.User
	if err == nil {
		u, err = p.ChangePassword(v.Context(), v.session.user.ID, v.PostForm.Get("old"), v.PostForm.Get("password"), p.clientAddr(v))
	}
	if err != nil {
		if weir.KindOf(err) == weir.Denied {
			err = weir.Errorf(weir.Denied, "The old password is wrong.")
		}
		return p.again(v, "account", accountView(), err)
	}
	if err := p.openSession(v.Context(), v.w, v.secure, u); err != nil {
		return err
	}
	return v.redirect("account?done=changed")
}
