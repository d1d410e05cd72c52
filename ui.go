//go:build !no_ui

package main

import (
	"embed"
	"io/fs"
)

//go:embed docs/*.md web/dist web/pages web/c2pa
var uiFiles embed.FS

// files are the pages for people: the console, the watch page and the manual.
func files() fs.FS { return uiFiles }
