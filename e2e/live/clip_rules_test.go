package live

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"weir/e2e/harness"
)

// TestClipRules looks whether the comparison of clips finds what is wrong with them.
func TestClipRules(t *testing.T) {
	t.Parallel()
	film := harness.MakeFilm(t, harness.FilmKind{BFrames: 2, FPS: 30, Key: 1, Seconds: 8})
	frames := filmFrames(t, film)
	const from, to = 1.3, 4.7
	encode := func(more ...string) []string {
		return append([]string{
			"-ss", strconv.FormatFloat(from, 'f', -1, 64), "-i", film.Path, "-t", strconv.FormatFloat(to-from, 'f', -1, 64),
			"-c:v", "libx264", "-preset", "ultrafast", "-c:a", "aac",
		}, more...)
	}
	for name, tt := range map[string]struct {
		args  []string
		whole bool
		want  string // in one of the errors; "" = all is well
	}{
		"encoded whole":             {encode(), true, ""},
		"encoded instead of copied": {encode(), false, "between the edges are not those of the source"},
		"from another frame":        {encode("-vf", "trim=start_frame=1,setpts=PTS-STARTPTS"), true, "want 39 to 140, 102 of them"},
		"a frame short":             {encode("-frames:v", "101"), true, "frames 39 to 139, 101 of them"},
		"a frame left out":          {encode("-vf", `select=not(eq(n\,50))`, "-fps_mode", "passthrough"), true, "frame 50 of 102 has the number 90, want 89"},
		"a frame twice":             {encode("-vf", `loop=loop=1:size=1:start=50,setpts=N/30/TB`), true, "frame 50 of 102 has the number 88, want 89"},
		"a frame late":              {encode("-vf", `settb=1/90000,setpts=PTS+1800*gte(N\,50)`, "-fps_mode", "passthrough", "-enc_time_base", "1:90000"), true, "comes 0.0533 s after the one before"},
		"audio late":                {encode("-af", "adelay=80"), true, "audio comes 0.0"},
		"no clicks":                 {encode("-af", "volume=0"), true, "0 clicks are heard, want 3"},
		"from the key frame before": {[]string{
			"-ss", "1.0", "-i", film.Path, "-t", strconv.FormatFloat(to-1.0, 'f', -1, 64), "-c", "copy",
		}, false, "frames 30 to "},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "clip.mp4")
			harness.FFmpeg(t, append(tt.args, file)...)
			_, wrong := film.CheckClip(harness.Window(frames, harness.FromStart, 1000*from, 1000*to), harness.Watch(t, file, false), tt.whole)
			var all []string
			for _, err := range wrong {
				all = append(all, err.Error())
			}
			if text := strings.Join(all, "\n"); tt.want == "" && text != "" || !strings.Contains(text, tt.want) {
				t.Errorf("the comparison says %q, want %q", text, tt.want)
			}
		})
	}
}

// filmFrames are the frames of a film itself.
func filmFrames(t *testing.T, film *harness.Film) (frames []harness.Frame) {
	t.Helper()
	for _, f := range harness.Watch(t, film.Path, film.HEVC).Frames {
		frames = append(frames, harness.Frame{Coded: f.Coded, Number: f.Number, Start: 1000 * f.Time})
	}
	return frames
}

// TestClipCommand cuts files with `weir clip`.
func TestClipCommand(t *testing.T) {
	t.Parallel()
	c := &clipper{t: t, w: harness.NewWeir(t), log: newClipLog(t, 21), random: newRandom(21, "")}
	defer c.log.report(t)
	for _, kind := range []harness.FilmKind{
		{BFrames: 2, FPS: 30, Key: 1, Seconds: 8},
		{HEVC: true, Open: true, BFrames: 3, FPS: 24, Key: 1, Seconds: 9},
	} {
		c.cutFile(harness.MakeFilm(t, kind), 2)
	}
}

// cutFile cuts clips at random with `weir clip`.
func (c *clipper) cutFile(film *harness.Film, n int) {
	c.t.Helper()
	frames := filmFrames(c.t, film)
	for range n {
		start, end := c.pick(frames, harness.FromStart)
		file := c.log.file()
		out, err := exec.Command(harness.Binary, "clip", film.Path, fmt.Sprintf("%.6f", start/1000), fmt.Sprintf("%.6f", end/1000), file, "--yes").CombinedOutput()
		if err != nil {
			c.t.Errorf("weir clip %v %.3f %.3f: %v\n%s", film, start, end, err, out)
			continue
		}
		said := strings.TrimSpace(string(out))
		said = said[strings.LastIndexByte(said, '\n')+1:]
		want := harness.Window(frames, harness.FromStart, start, end)
		got, wrong := film.CheckClip(want, harness.Watch(c.t, file, film.HEVC), strings.Contains(string(out), "the whole clip was encoded"))
		for _, err := range wrong {
			c.t.Errorf("weir clip %v %.3f %.3f (%s): %v", film, start, end, said, err)
		}
		var encoded, copied int
		if _, err := fmt.Sscanf(said, "encoded %d frames, copied %d,", &encoded, &copied); err != nil || encoded+copied != len(want) || copied != got.Copied {
			c.t.Errorf("weir clip says %q; %d of %d frames are those of the film", said, got.Copied, len(want))
		}
		c.log.add(fmt.Sprintf("%-10s %-28v %3d frames, MP4: %3d copied, audio %+.0f ms", "file", film, len(want), got.Copied, 1000*got.Offset), parsedClip{file, len(want)})
	}
}
