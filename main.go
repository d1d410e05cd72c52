// Weir is a video API in one binary: it speaks the Livepeer Studio HTTP API.
//
// This package only embeds files and starts the command line. Everything else is under
// internal/: cli has the commands, server is what `weir serve` runs. ARCHITECTURE.md is the map.
package main

import (
	_ "embed"
	"os"
	"runtime/debug"

	"weir/internal/cli"
)

//go:embed openapi.yaml
var openAPI []byte

// gcPercent lets the heap grow to four times what is alive before garbage is collected. What
// is alive is small (a few megabytes), so this costs little memory and saves a tenth of the CPU
// time of a busy API. GOGC takes precedence.
const gcPercent = 300

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	os.Exit(cli.Run(os.Args[1:], openAPI, files()))
}
