package cli

import (
	"context"

	"weir/internal/config"
	"weir/internal/server"
)

// serveCmd is `weir serve`.
type serveCmd struct{}

func (serveCmd) Run(ctx context.Context, cfg *config.Config, o server.Options) error {
	return server.Run(ctx, cfg, o)
}
