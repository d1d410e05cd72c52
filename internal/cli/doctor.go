package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/config"
	"weir/internal/ffmpeg"
	"weir/internal/server"
	"weir/internal/store"
)

type doctorCmd struct{}

func (doctorCmd) Run(ctx context.Context, cfg *config.Config) error {
	healthy, err := report(os.Stdout, examine(ctx, cfg, examineDatabase))
	if err == nil && !healthy {
		err = errors.New("something that weir needs is missing")
	}
	return err
}

// examineDatabase reports what the operator should know of the rows, or returns an error if the
// database does not answer. The first start creates that of SQLite.
func examineDatabase(ctx context.Context, cfg *config.Config) (findings []finding, err error) {
	if path, ok := cfg.SQLite(); ok {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	err = withStore(ctx, cfg, func(st *store.Store) error {
		if err := st.Ping(ctx); err != nil {
			return err
		}
		size, err := examineSize(ctx, st)
		if err != nil {
			return err
		}
		references, err := examineReferences(ctx, st)
		if err != nil {
			return err
		}
		orphans, err := examineOrphans(ctx, st)
		findings = slices.Concat(size, references, orphans)
		return err
	})
	return findings, err
}

// examineSize reports how large the database is, and which tables have the most rows.
func examineSize(ctx context.Context, st *store.Store) ([]finding, error) {
	size, err := st.Size(ctx)
	if err != nil {
		return nil, err
	}
	tables := slices.SortedFunc(maps.Keys(size.Rows), func(a, b string) int { return cmp.Compare(size.Rows[b], size.Rows[a]) })
	var most []string
	for _, table := range tables[:min(3, len(tables))] {
		most = append(most, fmt.Sprintf("%s %d", table, size.Rows[table]))
	}
	return []finding{{"database size", stateOK, fmt.Sprintf("%.1f MB; most rows: %s", float64(size.Bytes)/1e6, strings.Join(most, ", "))}}, nil
}

// maxReferences is how many references that cross projects are listed.
const maxReferences = 100

// examineReferences lists the references that cross projects. They work, but can't be created any
// more.
func examineReferences(ctx context.Context, st *store.Store) ([]finding, error) {
	const what = "projects"
	found, err := st.CrossReferences(ctx, maxReferences+1)
	var findings []finding
	for i, c := range found {
		if i == maxReferences {
			return append(findings, finding{what, stateNote, "and more; change these first"}), err
		}
		findings = append(findings, finding{what, stateNote, fmt.Sprintf(
			"%s %s names %s %s of another project, which works but can't be created any more; create one in its own project", c.From, c.FromID, c.To, c.ToID,
		)})
	}
	return findings, err
}

// examineOrphans lists accounts that were deleted when weir did not delete their content. It is for
// the operator to decide what becomes of it.
func examineOrphans(ctx context.Context, st *store.Store) (findings []finding, err error) {
	orphans, err := st.Orphans(ctx)
	for _, o := range orphans {
		findings = append(findings, finding{"deleted account", stateNote, fmt.Sprintf(
			"%s is deleted, and has %d streams, sessions, assets and tasks; to remove them: weir user delete %s", o.UserID, o.Rows, o.UserID,
		)})
	}
	return findings, err
}

// state is the severity of a finding.
type state string

const (
	stateOK      state = "ok"
	stateNote    state = "note"    // weir runs, but the operator should know
	stateMissing state = "missing" // weir does not run, or not all of it
)

// finding is one row of the doctor's report.
type finding struct {
	what   string
	state  state
	detail string
}

// examine checks everything that weir needs on this machine, and changes nothing.
func examine(ctx context.Context, cfg *config.Config, database func(context.Context, *config.Config) ([]finding, error)) []finding {
	findings := []finding{
		examineProgram(ctx, "ffmpeg"),
		examineProgram(ctx, "ffprobe"),
		examineFolder(cfg.Data),
		examineSpace("free space", cfg.Data),
		examineSecret(cfg),
		{"database", stateOK, "reachable"},
	}
	rows, err := database(ctx, cfg)
	if err != nil {
		findings[len(findings)-1] = finding{"database", stateMissing, err.Error()}
	}
	findings = append(append(findings, rows...), examineMediaSpace(cfg)...)
	if _, err := server.TLSConfig(cfg); err != nil {
		findings = append(findings, finding{"certificate", stateMissing, err.Error()})
	}
	findings = append(findings, examineEndpoints(ctx, cfg)...)
	return append(findings, examineConfinement(ctx, cfg)...)
}

// report writes the findings as a table and reports whether nothing is missing.
func report(w io.Writer, findings []finding) (healthy bool, err error) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	healthy = true
	for _, f := range findings {
		healthy = healthy && f.state != stateMissing
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", f.what, f.state, f.detail) // Flush returns its error
	}
	return healthy, table.Flush()
}

func examineProgram(ctx context.Context, name string) finding {
	path, err := exec.LookPath(name)
	if err != nil {
		return finding{name, stateMissing, "not in PATH; install it with: apt-get install ffmpeg"}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-version")
	// Without weir's own settings, which contain keys and passwords.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LD_LIBRARY_PATH=" + os.Getenv("LD_LIBRARY_PATH")}
	out, err := cmd.Output()
	if err != nil {
		return finding{name, stateMissing, fmt.Sprintf("%s -version: %v", path, err)}
	}
	line, _, _ := strings.Cut(string(out), "\n") // ffmpeg version 5.1.6 Copyright …
	words := strings.Fields(line)
	if len(words) < 3 || words[0] != name || words[1] != "version" {
		return finding{name, stateMissing, fmt.Sprintf("%s -version shows no version", path)}
	}
	return finding{name, stateOK, words[2] + " at " + path}
}

// existing returns the folder, or the first one above it that exists.
func existing(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for {
		info, err := os.Stat(dir)
		if err == nil && !info.IsDir() {
			return "", fmt.Errorf("%s is not a folder", dir)
		}
		if err == nil || !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir, err
		}
		dir = filepath.Dir(dir)
	}
}

func examineFolder(dir string) finding {
	const what = "data folder"
	at, err := existing(dir)
	if err == nil {
		err = unix.Access(at, unix.W_OK|unix.X_OK)
	}
	if err != nil {
		return finding{what, stateMissing, fmt.Sprintf("%s can't be written: %v", cmp.Or(at, dir), err)}
	}
	return finding{what, stateOK, dir + " can be written"}
}

// Below either of these, a disk is nearly full.
const (
	scarceBytes   = 2 << 30
	scarcePercent = 5
)

func examineSpace(what, dir string) finding {
	at, err := existing(dir)
	var disk unix.Statfs_t
	if err == nil {
		err = unix.Statfs(at, &disk)
	}
	if err != nil {
		return finding{what, stateNote, err.Error()}
	}
	free, total := disk.Bavail*uint64(disk.Bsize), disk.Blocks*uint64(disk.Bsize)
	detail := fmt.Sprintf("%.1f of %.1f GiB", float64(free)/(1<<30), float64(total)/(1<<30))
	if free < max(scarceBytes, total/100*scarcePercent) {
		return finding{what, stateNote, detail + "; free some space"}
	}
	return finding{what, stateOK, detail}
}

// examineMediaSpace reports the space for media, if the data folder is on another disk.
func examineMediaSpace(cfg *config.Config) []finding {
	dir, local := cfg.MediaDir()
	if !local {
		return nil
	}
	dir, err := existing(dir)
	if err != nil {
		return []finding{{"media folder", stateMissing, err.Error()}}
	}
	data, err := existing(cfg.Data)
	if err != nil || sameDisk(dir, data) {
		return nil
	}
	return []finding{examineSpace("media space", dir)}
}

func sameDisk(a, b string) bool {
	var first, second unix.Stat_t
	return unix.Stat(a, &first) == nil && unix.Stat(b, &second) == nil && first.Dev == second.Dev
}

func examineSecret(cfg *config.Config) finding {
	const what = "master secret"
	info, err := os.Stat(cfg.SecretFile)
	_, sqlite := cfg.SQLite()
	switch {
	case errors.Is(err, fs.ErrNotExist) && sqlite:
		return finding{what, stateOK, cfg.SecretFile + " will be made on first start"}
	case errors.Is(err, fs.ErrNotExist):
		return finding{what, stateMissing, cfg.SecretFile + " does not exist; with PostgreSQL, copy the same secret to every machine"}
	case err != nil:
		return finding{what, stateMissing, err.Error()}
	case unix.Access(cfg.SecretFile, unix.R_OK) != nil:
		return finding{what, stateMissing, cfg.SecretFile + " can't be read"}
	case info.Mode().Perm()&0o077 != 0:
		return finding{what, stateNote, fmt.Sprintf("%s is open to others (%v); run: chmod 600 %s", cfg.SecretFile, info.Mode().Perm(), cfg.SecretFile)}
	}
	return finding{what, stateOK, cfg.SecretFile}
}

// examineConfinement reports the kernel's features for the sandbox of ffmpeg, whether the sandbox
// works, and the encoders of this ffmpeg.
func examineConfinement(ctx context.Context, cfg *config.Config) []finding {
	kernel := ffmpeg.ReadKernel()
	mode := cmp.Or(ffmpeg.Mode(cfg.Sandbox), ffmpeg.Require)
	findings := []finding{examineSeccomp(kernel, mode), examineLandlock(kernel, mode), examineLimits()}

	self, err := os.Executable()
	if err != nil {
		return append(findings, finding{"sandbox", stateMissing, err.Error()})
	}
	engine, err := ffmpeg.New(ffmpeg.Options{Sandbox: mode, Self: self, Cores: cfg.Workers, Speed: cfg.SpeedFile()})
	if err != nil {
		return findings // the rows of the programs have it
	}
	can, err := engine.Capabilities(ctx)
	if err != nil {
		return append(findings, finding{"sandbox", stateMissing, fmt.Sprintf("ffmpeg does not run in mode %s: %v", mode, err)})
	}
	return append(findings, finding{"sandbox", stateOK, fmt.Sprintf("ffmpeg runs, mode %s", mode)}, examineEncoders(can), examineSpeed(ctx, engine))
}

// examineSpeed reports how much live encoding this machine can do.
func examineSpeed(ctx context.Context, engine *ffmpeg.Engine) finding {
	const what = "live encoding"
	limit := engine.Stats().Cores * ffmpeg.LiveShare
	speed, known := engine.Speed(ctx)
	if !known {
		return finding{what, stateNote, fmt.Sprintf("%.2f cores; their speed is measured with the first stream that has renditions", float64(limit)/1000)}
	}
	return finding{what, stateOK, fmt.Sprintf("%.2f cores, each with %.2f of the reference speed", float64(limit)/1000, speed)}
}

func examineSeccomp(kernel ffmpeg.Kernel, mode ffmpeg.Mode) finding {
	const what = "seccomp"
	switch {
	case kernel.Seccomp:
		return finding{what, stateOK, "filters available"}
	case mode == ffmpeg.Require, mode == ffmpeg.Strict:
		return finding{what, stateMissing, "this kernel has no seccomp filters, which the sandbox of ffmpeg needs; use another kernel, or --sandbox best"}
	}
	return finding{what, stateNote, "this kernel has no seccomp filters; the sandbox of ffmpeg works without them"}
}

func examineLandlock(kernel ffmpeg.Kernel, mode ffmpeg.Mode) finding {
	const what = "landlock"
	switch {
	case kernel.Landlock > 0:
		return finding{what, stateOK, fmt.Sprintf("ABI %d", kernel.Landlock)}
	case mode == ffmpeg.Strict:
		return finding{what, stateMissing, "not in this kernel, and --sandbox strict needs it; use another kernel, or --sandbox require"}
	}
	return finding{what, stateNote, "not in this kernel; the sandbox of ffmpeg works without it, and ffmpeg can read what weir can"}
}

// Below these, encoding large frames or many streams at once fails.
const (
	fewFiles     = 1024
	littleMemory = 8 << 30
)

// examineLimits reports the limits of this process. ffmpeg can't have higher ones.
func examineLimits() finding {
	const what = "limits"
	var low []string
	for _, l := range []struct {
		name     string
		resource int
		enough   uint64
	}{{"open files", unix.RLIMIT_NOFILE, fewFiles}, {"memory", unix.RLIMIT_DATA, littleMemory}, {"addresses", unix.RLIMIT_AS, 4 * littleMemory}} {
		var limit unix.Rlimit
		if err := unix.Getrlimit(l.resource, &limit); err != nil {
			return finding{what, stateNote, err.Error()}
		}
		if limit.Max < l.enough {
			low = append(low, fmt.Sprintf("%s %d", l.name, limit.Max))
		}
	}
	if len(low) > 0 {
		return finding{what, stateNote, "low: " + strings.Join(low, ", ") + "; raise them where weir is started"}
	}
	return finding{what, stateOK, "high enough"}
}

func examineEncoders(can ffmpeg.Capabilities) finding {
	const what = "encoders"
	var has, lacks []string
	for _, codec := range []struct {
		name string
		can  bool
	}{
		{"H.264", can.Encoder("libx264")},
		{"HEVC", can.Encoder("libx265")},
		{"VP9", can.Encoder("libvpx-vp9")},
		{"AV1", can.Encoder("libsvtav1") || can.Encoder("libaom-av1")},
		{"AAC", can.Encoder("aac")},
		{"Opus", can.Encoder("libopus")},
		{"tone mapping", can.Filter("zscale") && can.Filter("tonemap")},
	} {
		if codec.can {
			has = append(has, codec.name)
		} else {
			lacks = append(lacks, codec.name)
		}
	}
	detail := strings.Join(has, ", ")
	switch {
	case !can.Encoder("libx264") || !can.Encoder("aac"):
		return finding{what, stateMissing, "not in this ffmpeg: " + strings.Join(lacks, ", ") + "; install one with libx264"}
	case len(lacks) > 0:
		return finding{what, stateNote, detail + "; not in this ffmpeg: " + strings.Join(lacks, ", ")}
	}
	return finding{what, stateOK, detail}
}
