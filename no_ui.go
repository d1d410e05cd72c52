//go:build no_ui

package main

import "io/fs"

// files returns nil: this program was built with -tags no_ui and has no pages for people.
func files() fs.FS { return nil }
