package ffmpeg

import (
	"bytes"
	"context"
	"strings"
	"time"

	"weir/internal/weir"
)

// Capabilities lists the encoders and filters of this ffmpeg.
type Capabilities struct {
	version  string
	encoders map[string]bool
	filters  map[string]bool
}

// Encoder reports whether ffmpeg has the encoder: libx264, libx265, libvpx-vp9,
// libsvtav1, libaom-av1, aac, libopus …
func (c Capabilities) Encoder(name string) bool { return c.encoders[name] }

// Filter reports whether ffmpeg has the filter: zscale, tonemap, bwdif …
func (c Capabilities) Filter(name string) bool { return c.filters[name] }

const capabilityLimit = 20 * time.Second

// Capabilities asks ffmpeg once, in the sandbox, so it also tests whether ffmpeg can run at all.
func (e *Engine) Capabilities(ctx context.Context) (Capabilities, error) {
	e.capabilityLock.Lock()
	defer e.capabilityLock.Unlock()
	if e.capabilities != nil {
		return *e.capabilities, nil
	}
	var outputs [3]string
	for i, option := range []string{"-version", "-encoders", "-filters"} {
		var err error
		if outputs[i], err = e.print(ctx, option); err != nil {
			return Capabilities{}, err
		}
	}
	words := strings.Fields(outputs[0]) // ffmpeg version 5.1.6-0+deb12u1 Copyright …
	if len(words) < 3 || words[0] != "ffmpeg" || words[1] != "version" {
		return Capabilities{}, weir.Errorf(weir.Unavailable, "%s does not say which version it is; install ffmpeg", e.ffmpeg)
	}
	c := Capabilities{version: words[2], encoders: listed(outputs[1]), filters: listed(outputs[2])}
	e.capabilities = &c
	return c, nil
}

func (e *Engine) print(ctx context.Context, option string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, capabilityLimit)
	defer cancel()
	var output bytes.Buffer
	err := e.execute(ctx, process{
		program: e.ffmpeg,
		args:    []string{"-hide_banner", "-v", "error", option},
		grant:   grant{Memory: memoryFor(0, 1), CPU: capabilityLimit},
		stdout:  &output,
	})
	return output.String(), err
}

// listed returns the names in a list of ffmpeg: each line after the legend has flags, a name and a
// description.
func listed(list string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		if len(words) >= 2 && words[1] != "=" {
			names[words[1]] = true
		}
	}
	return names
}
