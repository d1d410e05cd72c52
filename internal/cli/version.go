package cli

import (
	"os"

	"weir/internal/server"
)

type versionCmd struct{}

func (versionCmd) Run() error { return show(os.Stdout, "%s\n", server.ReadVersion()) }
