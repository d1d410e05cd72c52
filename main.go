// Weir is a video API in one binary: it speaks the Livepeer Studio HTTP API.
//
// This package knows every part: main.go has the commands, config.go the one
// struct of settings, serve.go builds the parts in import order, runs them and
// waits for them. Everything else is under internal/; ARCHITECTURE.md is the map.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

// gcPercent lets the heap grow to four times what is alive before it is swept.
// What is alive is small (a few megabytes), so that costs little memory and saves
// a tenth of the CPU time of a busy API. GOGC still wins.
const gcPercent = 300

func main() {
	if len(os.Args) > 1 && os.Args[1] == "sandbox" {
		sandbox(os.Args[2:])
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	// The first signal drains; after it the signals have their usual effect, so a
	// second one ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := run(ctx, os.Args[1:]); err != nil {
		os.Exit(exit(os.Stderr, err))
	}
}

// run does one command.
func run(ctx context.Context, args []string) error {
	command, cfg, err := parse(args, os.LookupEnv, os.Stdout)
	if errors.Is(err, errHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	command.BindTo(ctx, (*context.Context)(nil))
	return command.Run(cfg)
}
