//go:build !no_ui

package main

import (
	"embed"
	"io/fs"
)

//go:embed docs/*.md web/dist web/pages
//go:embed web/watch.html web/watch.css web/watch.js web/hls.min.js web/hls.LICENSE
//go:embed web/verify.js web/c2pa.js web/c2pa.wasm.gz web/c2pa.LICENSE
var uiFiles embed.FS

// files are the pages for people: the console, the watch page and the manual.
func files() fs.FS { return uiFiles }
