//go:build !no_ui

package main

import (
	"embed"
	"io/fs"
)

//go:embed web/dist web/pages web/c2pa
var uiFiles embed.FS

// files are the pages for people: the console and the watch page.
func files() fs.FS { return uiFiles }
