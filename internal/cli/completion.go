package cli

import (
	"os"

	"weir/internal/config"
)

// completionCmd is `weir completion SHELL`.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell to complete in: bash, zsh or fish."`
}

// Help is what `weir completion --help` shows below the usage.
func (completionCmd) Help() string {
	return `Examples:
  source <(weir completion bash)                                     # in this shell
  weir completion bash > /etc/bash_completion.d/weir                 # in every new one
  weir completion zsh > "${fpath[1]}/_weir"
  weir completion fish > ~/.config/fish/completions/weir.fish`
}

func (c completionCmd) Run() error {
	script, err := config.Completion(&commands{}, c.Shell)
	if err != nil {
		return err
	}
	return show(os.Stdout, "%s", script)
}
