package cli

import (
	"context"

	"weir/internal/config"
	"weir/internal/server"
)

type serveCmd struct{}

func (serveCmd) Run(ctx context.Context, cfg *config.Config, o server.Options) error {
	return server.Run(ctx, cfg, o)
}
