// Package cli is the command line of weir: one file for each command. A command reads its
// arguments and prints; the work is done by package server and the packages below it.
//
// Start at [Run]. All commands have the same settings, those of package config: `weir key
// create` must find the database that `weir serve` uses.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"weir/internal/config"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/weir"
)

// commands is the command line. The tag settings names the settings that count for a command: see
// config.Parse.
type commands struct {
	config.Config
	ShowVersion bool `name:"version" help:"Print the version."`

	Serve      serveCmd      `cmd:"" default:"1" settings:"all" help:"Run the service (the default)."`
	Key        keyCmd        `cmd:"" settings:"store" help:"Manage API keys."`
	User       userCmd       `cmd:"" settings:"store" help:"Manage accounts."`
	Stream     streamCmd     `cmd:"" settings:"store" help:"Manage live streams."`
	Asset      assetCmd      `cmd:"" settings:"store,address,api-key" help:"Manage assets of a running weir."`
	Webhook    webhookCmd    `cmd:"" settings:"store,address,api-key" help:"Receive events of a running weir."`
	Transcode  transcodeCmd  `cmd:"" settings:"max-upload,max-duration,ipfs-gateways,arweave-gateways,workers,sandbox,c2pa-key,c2pa-cert,c2pa-timestamp" help:"Make HLS and MP4 of a video, without a server."`
	Clip       clipCmd       `cmd:"" settings:"max-duration,workers,sandbox" help:"Cut a clip out of a video, exact to the frame, without a server."`
	Verify     verifyCmd     `cmd:"" settings:"none" help:"Check who signed a video, and that it was not changed since."`
	Backup     backupCmd     `cmd:"" settings:"store,storage" help:"Copy everything this node keeps, also while it runs."`
	Doctor     doctorCmd     `cmd:"" settings:"all" help:"Check that this machine has what weir needs."`
	Version    versionCmd    `cmd:"" settings:"none" help:"Print the version."`
	Completion completionCmd `cmd:"" settings:"none" help:"Print a script that completes commands and flags in a shell."`
	Help       helpCmd       `cmd:"" settings:"none" help:"Show what a command does and its flags."`
}

// Run runs the command of the arguments and returns the exit status of the process. openAPI is
// the contract of the API; files has the folder web/.
func Run(args []string, openAPI []byte, files fs.FS) (status int) {
	if len(args) > 0 && args[0] == "sandbox" {
		return sandbox(os.Stderr, args[1:])
	}
	// The first signal ends ctx. Then signals have their usual effect again, so a second one
	// ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	command, c, err := parse(args, os.LookupEnv, os.Stdout)
	if err == nil {
		if !strings.HasPrefix(command.Name, "transcode") && !strings.HasPrefix(command.Name, "clip") {
			// What the service keeps is for its user only. What transcode and clip make is for the caller,
			// whose umask counts.
			syscall.Umask(0o077)
		}
		switch first, _, _ := strings.Cut(command.Name, " "); first {
		case "asset", "stream", "user", "webhook": // which use or print addresses of the service
			server.FindRunning(&c.Config)
		}
		err = command.Run(ctx, &c.Config, server.Options{
			OpenAPI: openAPI, Files: files, Greeting: os.Stdout, Log: os.Stderr,
		})
	}
	return exitStatus(os.Stderr, err)
}

// parse reads the command line, the environment and the settings file.
func parse(args []string, env func(string) (string, bool), stdout io.Writer) (*config.Command, *commands, error) {
	switch {
	case slices.Contains(args, "--version"):
		args = []string{"version"} // whatever else is there, also invalid settings
	case len(args) > 0 && args[0] == "help" && !slices.Contains(args, "--help"):
		args = append(slices.Clone(args[1:]), "--help")
	}
	c := &commands{}
	command, err := config.Parse(c, &c.Config, args, env, stdout)
	return command, c, err
}

type exitError struct {
	error
	status int
	shown  bool // it was printed already
}

func (e *exitError) Unwrap() error { return e.error }

// exitStatus prints the error of a command and returns the exit status.
func exitStatus(stderr io.Writer, err error) int {
	if err == nil || errors.Is(err, config.ErrHelp) {
		return 0
	}
	e, ok := errors.AsType[*exitError](err)
	if !ok || !e.shown {
		_, _ = fmt.Fprintln(stderr, "weir:", err)
	}
	if ok {
		return e.status
	}
	return 1
}

// users finds accounts: the store, or a transaction.
type users interface {
	FirstUser(ctx context.Context) (weir.User, error)
	UserByEmail(ctx context.Context, email string) (weir.User, error)
}

// findUser returns the account with the address, or the first one.
func findUser(ctx context.Context, st users, email string) (weir.User, error) {
	if email == "" {
		return st.FirstUser(ctx)
	}
	u, err := st.UserByEmail(ctx, strings.ToLower(email))
	if weir.KindOf(err) == weir.NotFound && err != nil {
		return u, fmt.Errorf("there is no account with the address %s; weir user list shows them", email)
	}
	return u, err
}

// withStore opens the database for a command.
func withStore(ctx context.Context, cfg *config.Config, run func(*store.Store) error) error {
	st, err := server.OpenStore(ctx, cfg)
	if err != nil {
		return err
	}
	defer st.Close()
	return run(st)
}

// printTable prints all pages of a list; row returns the cells of an item, with tabs between them.
func printTable[T any](
	ctx context.Context, header, userID string, list func(context.Context, store.Query) (store.Page[T], error), row func(T) (string, error),
) error {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, header)
	q := store.Query{Limit: store.MaxLimit, Order: "createdAt-false", UserID: userID}
	for {
		page, err := list(ctx, q)
		for _, item := range page.Items {
			line, rowErr := row(item)
			err = errors.Join(err, rowErr)
			_, _ = fmt.Fprintln(table, line)
		}
		if q.Cursor = page.Next; err != nil || q.Cursor == "" {
			return errors.Join(err, table.Flush())
		}
	}
}

func show(w io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintf(w, format, args...)
	return err
}

// minute formats a time for a table.
func minute(m weir.Millis) string {
	if m == 0 {
		return "never"
	}
	return m.Time().Format("2006-01-02 15:04")
}
