package cli

import (
	"os"

	"weir/internal/server"
)

// versionCmd is `weir version`.
type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run() error { return show(os.Stdout, "%s\n", server.ReadVersion()) }
