package cli

import (
	"fmt"
	"io"

	"weir/internal/ffmpeg"
)

// exitSandbox is the exit status of `weir sandbox` if it could not become the program.
const exitSandbox = 125

// sandbox is `weir sandbox … -- PROGRAM …`, through which the service starts ffmpeg: it confines
// itself and becomes the program. It is not among the commands and reads no settings, because
// it runs thousands of times and must not see a secret.
func sandbox(stderr io.Writer, args []string) (status int) {
	_, _ = fmt.Fprintln(stderr, "weir sandbox:", ffmpeg.Sandbox(args))
	return exitSandbox
}
