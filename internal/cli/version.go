package cli

import (
	"os"

	"weir/internal/server"
)

// versionCmd is `weir version`.
type versionCmd struct{}

func (versionCmd) Run() error { return show(os.Stdout, "%s\n", server.ReadVersion()) }
