package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"weir/internal/weir"
)

// consent decides whether a command may overwrite files: by --yes, or by the reply of a person.
type consent struct {
	yes      bool
	terminal bool // a person can be asked
	in       io.Reader
	out      io.Writer
}

func newConsent(yes, json bool) consent {
	return consent{yes: yes, terminal: isTerminal(os.Stdin) && isTerminal(os.Stderr) && !json, in: os.Stdin, out: os.Stderr}
}

// isTerminal reports whether a file is a terminal.
func isTerminal(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// file returns an error if there is a file at the path that may not be overwritten.
func (c consent) file(ctx context.Context, path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil // whoever writes it knows whether it can
	}
	return c.ask(ctx, path, "exists")
}

// folder returns an error if there are files in a folder that may not be overwritten. Hidden files do not
// count. Those of a command that was killed, whose work folder is there, may be.
func (c consent) folder(ctx context.Context, path, work string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil // whoever writes to it says why it can't
	}
	full := false
	for _, entry := range entries {
		if entry.Name() == work {
			return nil
		}
		full = full || !strings.HasPrefix(entry.Name(), ".")
	}
	if !full {
		return nil
	}
	return c.ask(ctx, path, "is not empty, and files with the same names are overwritten")
}

// ask asks a person whether what exists at the path may be overwritten.
func (c consent) ask(ctx context.Context, path, what string) error {
	if c.yes {
		return nil
	}
	if !c.terminal {
		return weir.Errorf(weir.Invalid, "%s: %s; choose another path, or overwrite with --yes", path, what)
	}
	if _, err := fmt.Fprintf(c.out, "%s: %s. Overwrite? [y/N] ", path, what); err != nil {
		return err
	}
	// A read of a terminal can't be interrupted. Nothing waits for it when ctx has ended: the process ends.
	reply := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(c.in).ReadString('\n')
		reply <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case text := <-reply:
		if text == "y" || text == "yes" {
			return nil
		}
		return weir.Errorf(weir.Invalid, "%s: was not overwritten", path)
	}
}
