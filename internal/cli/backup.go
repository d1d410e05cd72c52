package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"weir/internal/config"
	"weir/internal/server"
	"weir/internal/vod"
)

type backupCmd struct {
	Dir string `arg:"" help:"Folder to write to; it must be empty or not exist."`
}

func (c backupCmd) Run(ctx context.Context, cfg *config.Config) error {
	b := server.Backup{Config: cfg, Dir: c.Dir}
	shown := newReporter(false, os.Stdout, os.Stderr)
	if shown.terminal {
		b.Progress = func(done, total int64) {
			shown.progress(vod.Progress{Step: "copying", Fraction: float64(done) / float64(total)})
		}
	}
	has, err := b.Make(ctx)
	if shown.step != "" {
		_, _ = fmt.Fprintln(os.Stderr)
	}
	if err != nil {
		return err
	}
	if !has.Database {
		return show(os.Stdout, `The master secret and the identity of this node are in %s.
Back up PostgreSQL with its own tools, for example:
  pg_dump --format=custom --file=%s "$WEIR_DATABASE"
and after it the media: the bucket with the tools of its service, or the media folder.
`, c.Dir, filepath.Join(c.Dir, "weir.dump"))
	}
	what := []string{"the database", "the master secret", "the identity of this node"}
	switch {
	case has.Recordings == 1:
		what = append(what, "1 unfinished recording")
	case has.Recordings > 1:
		what = append(what, fmt.Sprint(has.Recordings, " unfinished recordings"))
	}
	if has.Media {
		what = append(what, "the media")
	}
	last := len(what) - 1
	if err := show(os.Stdout, "In %s are %s and %s.\nTo restore, copy the folder to a machine and run there: weir serve --data %s\n",
		c.Dir, strings.Join(what[:last], ", "), what[last], c.Dir); err != nil || has.Media {
		return err
	}
	return show(os.Stdout, "The media is in a bucket: back it up with the tools of its service.\n")
}
