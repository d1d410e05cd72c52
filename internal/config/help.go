package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// allSettings in the tag `settings` of a command is every setting, noSettings none.
const (
	allSettings = "all"
	noSettings  = "none"
)

// settingSet returns the settings that a name in the tag `settings` of a command stands for: several that
// commands have in common, or the one of that name.
func settingSet(name string) []string {
	switch name {
	case "store": // the database of the service
		return []string{"data", "database", "secret-file"}
	case "address": // where people reach the service
		return []string{"http", "tls-cert", "tls-key", "acme", "public-url"}
	case "ingest": // where encoders reach it
		return []string{"run", "rtmp", "rtmps", "srt", "srt-passphrase", "webrtc"}
	}
	return []string{name}
}

// settingsOf returns the settings that count for a command, from its tag or that of a command above it.
func settingsOf(command *kong.Node) []string {
	for ; command != nil; command = command.Parent {
		if command.Tag == nil || !command.Tag.Has("settings") {
			continue
		}
		var names []string
		for name := range strings.SplitSeq(command.Tag.Get("settings"), ",") {
			names = append(names, settingSet(name)...)
		}
		return names
	}
	return nil
}

// readsSettings reports whether a command has settings at all. One that has none runs also with invalid ones.
func readsSettings(command *kong.Node) bool {
	return !slices.Equal(settingsOf(command), []string{noSettings})
}

// counts reports whether a flag of the application is of use for a command; nil = no command.
func counts(command *kong.Node, flag *kong.Flag) bool {
	switch {
	case flag.Name == "help":
		return true
	case command == nil:
		return flag.Name == "version"
	case !command.Leaf():
		return false // its commands differ
	case flag.Name == "version":
		return false
	case flag.Name == "config":
		return readsSettings(command)
	}
	names := settingsOf(command)
	return slices.Contains(names, allSettings) || slices.Contains(names, flag.Name)
}

// printHelp prints the help of a command, with the settings that count for it.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	command := ctx.Selected()
	for _, flag := range ctx.Model.Flags {
		flag.Hidden = flag.Hidden || !counts(command, flag)
	}
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil || command != nil {
		return err
	}
	_, err := fmt.Fprintln(ctx.Stdout, `Run "weir serve --help" for the settings of the service.`)
	return err
}

// explain adds what to do next to an error of the command line.
func explain(err error) error {
	text := err.Error()
	if strings.HasPrefix(text, "unexpected argument") && !strings.Contains(text, "did you mean") {
		return fmt.Errorf("%w; weir help lists the commands", err)
	}
	return err
}
