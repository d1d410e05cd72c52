// Package service drives what surrounds media: accounts, keys, commands, webhooks, several
// nodes, floods of bad input, secrets, the official SDK.
package service

import (
	"os"
	"testing"

	"weir/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
