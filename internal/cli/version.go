package cli

import (
	"errors"
	"os"

	"weir/internal/server"
)

// helpCmd is `weir help COMMAND`, which parse turns into `weir COMMAND --help`.
type helpCmd struct {
	Command []string `arg:"" optional:"" help:"Command to explain, such as key create."`
}

func (helpCmd) Run() error { return errors.New("write help first, as in: weir help key create") }

type versionCmd struct{}

func (versionCmd) Run() error { return show(os.Stdout, "%s\n", server.ReadVersion()) }
