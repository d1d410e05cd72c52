package main

import (
	"fmt"
	"os"

	"weir/internal/ffmpeg"
)

// sandboxFailed is the exit status of `weir sandbox` when it could not become the
// program it was to run.
const sandboxFailed = 125

// sandbox is `weir sandbox … -- PROGRAM …`, which the service starts for each run of
// ffmpeg: it confines itself and becomes the program. It stands before all other
// commands and reads no settings, because it runs thousands of times and must not see
// any secret.
func sandbox(args []string) {
	fmt.Fprintln(os.Stderr, "weir sandbox:", ffmpeg.Sandbox(args))
	os.Exit(sandboxFailed)
}
