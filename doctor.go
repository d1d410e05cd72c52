package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/ffmpeg"
)

// state says how much a finding of the doctor matters.
type state string

const (
	stateOK      state = "ok"
	stateNote    state = "note"    // weir runs, but somebody should know
	stateMissing state = "missing" // weir does not run, or not all of it
)

// finding is one row of the doctor's report.
type finding struct {
	what   string
	state  state
	detail string
}

// found is a finding that err turns into something missing.
func found(what, detail string, err error) finding {
	if err != nil {
		return finding{what, stateMissing, err.Error()}
	}
	return finding{what, stateOK, detail}
}

// examine looks at everything that weir needs on this machine and changes
// nothing. reachDatabase says whether the database answers.
func examine(ctx context.Context, cfg *Config, reachDatabase func(context.Context) error) []finding {
	findings := []finding{
		examineProgram(ctx, "ffmpeg"),
		examineProgram(ctx, "ffprobe"),
		examineFolder(cfg.Data),
		examineSpace(cfg.Data),
		examineSecret(cfg),
		found("database", "answers", reachDatabase(ctx)),
	}
	findings = append(findings, examineMediaSpace(cfg)...)
	secure, err := tlsConfig(cfg)
	if err != nil {
		findings = append(findings, finding{"certificate", stateMissing, err.Error()})
	}
	serving := false
	for _, a := range []struct {
		setting, addr string
		sign          sign
	}{
		{"http", cfg.HTTP, sign{secure != nil, "/healthz", `"ok":true`}},
		{"ops", cfg.Ops, sign{false, "/metrics", "weir_build_info"}},
	} {
		if a.addr == "" {
			continue
		}
		f := examineAddress(ctx, a.setting, a.addr, a.sign)
		serving = serving || f.detail == weirServes
		findings = append(findings, f)
	}
	findings = append(findings, examineDoors(ctx, cfg, serving)...)
	return append(findings, examineConfinement(ctx, cfg)...)
}

// report writes the findings as a table and says whether nothing needed is missing.
func report(w io.Writer, findings []finding) (healthy bool, err error) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	healthy = true
	for _, f := range findings {
		healthy = healthy && f.state != stateMissing
		if _, err := fmt.Fprintf(table, "%s\t%s\t%s\n", f.what, f.state, f.detail); err != nil {
			return false, err
		}
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
	// Nothing of weir's own settings: there are keys and passwords in them.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LD_LIBRARY_PATH=" + os.Getenv("LD_LIBRARY_PATH")}
	out, err := cmd.Output()
	if err != nil {
		return finding{name, stateMissing, fmt.Sprintf("%s -version: %v", path, err)}
	}
	line, _, _ := strings.Cut(string(out), "\n") // ffmpeg version 5.1.6 Copyright …
	words := strings.Fields(line)
	if len(words) < 3 || words[0] != name || words[1] != "version" {
		return finding{name, stateMissing, fmt.Sprintf("%s does not say which version it is", path)}
	}
	return finding{name, stateOK, words[2] + " at " + path}
}

// existing returns the folder, or the one above it that exists and in which it would be made.
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

func examineSpace(dir string) finding {
	const what = "free space"
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
		return finding{what, stateNote, detail + "; make room"}
	}
	return finding{what, stateOK, detail}
}

func examineSecret(cfg *Config) finding {
	const what = "master secret"
	info, err := os.Stat(cfg.SecretFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(cfg.Database.Reveal(), "sqlite:"):
		return finding{what, stateOK, cfg.SecretFile + " will be made on first start"}
	case errors.Is(err, fs.ErrNotExist):
		return finding{what, stateMissing, cfg.SecretFile + " does not exist; with PostgreSQL you bring the same secret to every machine"}
	case err != nil:
		return finding{what, stateMissing, err.Error()}
	case unix.Access(cfg.SecretFile, unix.R_OK) != nil:
		return finding{what, stateMissing, cfg.SecretFile + " can't be read"}
	case info.Mode().Perm()&0o077 != 0:
		return finding{what, stateNote, fmt.Sprintf("%s is open to others (%v); run: chmod 600 %s", cfg.SecretFile, info.Mode().Perm(), cfg.SecretFile)}
	}
	return finding{what, stateOK, cfg.SecretFile}
}

// weirServes is what is found at an address that weir itself has.
const weirServes = "weir is serving there"

// sign is how to recognise weir by what it answers.
type sign struct {
	secure     bool
	path, text string
}

// examineAddress finds out whether weir could listen on the address, or already does.
func examineAddress(ctx context.Context, setting, addr string, weir sign) finding {
	what := setting + " " + addr
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	switch {
	case err == nil:
		_ = listener.Close()
		return finding{what, stateOK, "free"}
	case errors.Is(err, syscall.EADDRINUSE) && weir.shows(ctx, addr):
		return finding{what, stateOK, weirServes}
	}
	return finding{what, stateMissing, whyNotListening(err, setting)}
}

// shows reports whether what listens on the address answers like weir.
func (s sign) shows(ctx context.Context, addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http"
	if s.secure {
		scheme = "https"
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+net.JoinHostPort(host, port)+s.path, nil)
	if err != nil {
		return false
	}
	// The certificate is for the public name, not for this address; nothing is sent or believed here.
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	}}
	answer, err := client.Do(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	return err == nil && answer.StatusCode == http.StatusOK && strings.Contains(string(body), s.text)
}

// examineConfinement says what the kernel has to lock ffmpeg in with, whether that
// works, and what this ffmpeg can make.
func examineConfinement(ctx context.Context, cfg *Config) []finding {
	kernel := ffmpeg.ReadKernel()
	mode := cmp.Or(ffmpeg.Mode(cfg.Sandbox), ffmpeg.Require)
	findings := []finding{examineSeccomp(kernel, mode), examineLandlock(kernel), examineLimits()}

	self, err := os.Executable()
	if err != nil {
		return append(findings, finding{"sandbox", stateMissing, err.Error()})
	}
	engine, err := ffmpeg.New(ffmpeg.Options{Sandbox: mode, Self: self, Cores: cfg.Workers, Speed: speedFile(cfg)})
	if err != nil {
		return findings // the rows of the programs say it
	}
	can, err := engine.Capabilities(ctx)
	if err != nil {
		return append(findings, finding{"sandbox", stateMissing, fmt.Sprintf("ffmpeg does not run in mode %s: %v", mode, err)})
	}
	return append(findings, finding{"sandbox", stateOK, fmt.Sprintf("ffmpeg runs, mode %s", mode)}, examineEncoders(can), examineSpeed(ctx, engine))
}

// examineSpeed says how much this machine can encode of live streams.
func examineSpeed(ctx context.Context, engine *ffmpeg.Engine) finding {
	const what = "live encoding"
	limit := engine.Stats().Cores * ffmpeg.LiveShare
	speed, known := engine.Speed(ctx)
	if !known {
		return finding{what, stateNote, fmt.Sprintf("%.2f cores; how fast they are is measured with the first stream that has renditions", float64(limit)/1000)}
	}
	return finding{what, stateOK, fmt.Sprintf("%.2f cores, each %.2f of what costs are reckoned in", float64(limit)/1000, speed)}
}

func examineSeccomp(kernel ffmpeg.Kernel, mode ffmpeg.Mode) finding {
	const what = "seccomp"
	switch {
	case kernel.Seccomp:
		return finding{what, stateOK, "filters available"}
	case mode == ffmpeg.Require:
		return finding{what, stateMissing, "this kernel has no seccomp filters, which the sandbox of ffmpeg needs; use another kernel, or --sandbox best"}
	}
	return finding{what, stateNote, "this kernel has no seccomp filters; the sandbox of ffmpeg does without"}
}

func examineLandlock(kernel ffmpeg.Kernel) finding {
	const what = "landlock"
	if kernel.Landlock == 0 {
		return finding{what, stateNote, "not in this kernel; the sandbox of ffmpeg does without, and ffmpeg can read what weir can"}
	}
	return finding{what, stateOK, fmt.Sprintf("ABI %d", kernel.Landlock)}
}

// Below these, encoding of large pictures or many streams at once fails.
const (
	fewFiles     = 1024
	littleMemory = 8 << 30
)

// examineLimits looks at the limits that weir itself was started with; what it starts
// can't have more.
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

// examineEncoders says what this ffmpeg can make.
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
