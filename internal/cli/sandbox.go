package cli

import (
	"fmt"
	"io"

	"weir/internal/ffmpeg"
)

// exitSandbox is the exit status of `weir sandbox` if it could not become the program.
const exitSandbox = 125

// sandbox is `weir sandbox … -- PROGRAM …`, which starts ffmpeg for the service: it restricts itself and
// becomes the program. It is not among the commands and reads no settings, because it runs thousands of
// times and must not have secrets.
func sandbox(stderr io.Writer, args []string) (status int) {
	_, _ = fmt.Fprintln(stderr, "weir sandbox:", ffmpeg.Sandbox(args))
	return exitSandbox
}
