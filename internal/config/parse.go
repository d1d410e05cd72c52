package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"

	"weir/internal/weir"
)

// Command is the command of the command line.
type Command struct {
	Name   string // with its arguments, such as "key create <name>"
	parsed *kong.Context
}

// Run calls the Run method of the command. It gets ctx and those of the values that it has
// parameters for, by their types.
func (c *Command) Run(ctx context.Context, values ...any) error {
	c.parsed.BindTo(ctx, (*context.Context)(nil))
	return c.parsed.Run(values...)
}

// ErrHelp is the error of Parse when it has printed the help.
var ErrHelp = errors.New("help was shown")

// Parse reads the command and the settings. commands is a pointer to a struct with a field
// for each command; the settings among its fields are cfg. The tag `settings` of a command names those
// that count for it: its help lists them. All are accepted everywhere, because all commands share the
// environment and the settings file. Help goes to stdout.
func Parse(commands any, cfg *Config, args []string, env func(string) (string, bool), stdout io.Writer) (*Command, error) {
	helped := false
	sources := &sources{env: env}
	parser, err := newParser(
		commands, kong.Writers(stdout, io.Discard), kong.Exit(func(int) { helped = true }),
		kong.Resolvers(sources), kong.WithBeforeResolve(sources.readFile),
	)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.Parse(args)
	if helped {
		return nil, ErrHelp
	}
	if err != nil {
		return nil, explain(err)
	}
	if !readsSettings(parsed.Selected()) {
		return &Command{parsed.Command(), parsed}, nil
	}
	cfg.complete()
	return &Command{parsed.Command(), parsed}, cfg.check()
}

// newParser makes a parser that knows the types of settings.
func newParser(commands any, options ...kong.Option) (*kong.Kong, error) {
	return kong.New(commands, append(
		options,
		kong.Name("weir"),
		kong.Description("A video API in one binary. It speaks the Livepeer Studio API."),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), textMapper(parseDuration)),
		kong.TypeMapper(reflect.TypeFor[netip.Prefix](), textMapper(parsePrefix)),
		kong.TypeMapper(reflect.TypeFor[slog.Level](), textMapper(parseLevel)),
		kong.NamedMapper("size", textMapper(ParseSize)),
		kong.Help(printHelp),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, WrapUpperBound: 100}),
		kong.ValueFormatter(helpText),
	)...)
}

// ParseSize reads a number of bytes, such as 500MB or 30GiB. auto, which is 0, is a size that
// follows from the machine.
func ParseSize(s string) (int64, error) {
	if s == "auto" {
		return 0, nil
	}
	digits := strings.TrimRight(s, "KMGTiB")
	units := map[string]int64{
		"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
		"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	}
	unit, known := units[s[len(digits):]]
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || !known || n < 0 || n*float64(unit) > 1<<60 {
		return 0, fmt.Errorf("%q is not a size; write it like 500MB or 30GiB", s)
	}
	return int64(n * float64(unit)), nil
}

// parseDuration is time.ParseDuration with days: 7d, 1d12h.
func parseDuration(s string) (time.Duration, error) {
	days, rest, found := strings.Cut(s, "d")
	if !found {
		days, rest = "0", s
	}
	n, err := strconv.ParseUint(days, 10, 16)
	d := time.Duration(0)
	if err == nil && (rest != "" || !found) {
		d, err = time.ParseDuration(rest)
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration; write it like 30s, 24h or 7d", s)
	}
	return time.Duration(n)*24*time.Hour + d, nil
}

// parsePrefix reads a network, or a single address as the network of itself.
func parsePrefix(s string) (netip.Prefix, error) {
	s = strings.TrimSpace(s)
	if addr, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return prefix, fmt.Errorf("%q is not a network; write it like 10.0.0.0/8 or fd00::/8", s)
	}
	return prefix.Masked(), nil
}

func parseLevel(s string) (slog.Level, error) {
	var level slog.Level
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, s) || level.UnmarshalText([]byte(s)) != nil {
		return 0, fmt.Errorf("%q is not a level; use debug, info, warn or error", s)
	}
	return level, nil
}

// textMapper lets kong read a setting with the function.
func textMapper[T any](read func(string) (T, error)) kong.Mapper {
	return kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("value", &text); err != nil {
			return err
		}
		value, err := read(text)
		if err != nil {
			return err
		}
		target.Set(reflect.ValueOf(value))
		return nil
	})
}

// helpText adds the default and the environment variable to the help of a setting.
func helpText(value *kong.Value) string {
	if value.Flag == nil || !isSetting(value.Flag) && value.Name != "config" {
		return value.Help
	}
	text := value.Help
	if value.Default != "" && !value.IsBool() {
		text += " Default: " + value.Default
	}
	return text + " ($" + envName(value.Name) + ")"
}

// isSetting reports whether a flag is a setting. The others of the application have no group.
func isSetting(flag *kong.Flag) bool { return flag.Group != nil }

// envName returns the environment variable of a setting.
func envName(setting string) string {
	return "WEIR_" + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

// defaultFile is the default settings file.
const defaultFile = "weir.yaml"

// sources finds the settings that the command line does not have: in the environment, then in
// the settings file.
type sources struct {
	env  func(string) (string, bool)
	path string            // of the settings file
	file map[string]string // settings of that file; nil = not read yet
}

// readFile reads the settings file. It runs before any setting is resolved: kong puts the
// name of the setting that it resolves before the error of a resolver.
func (s *sources) readFile(ctx *kong.Context) error {
	if s.file != nil {
		return nil // kong calls this for each element of the command line
	}
	if !readsSettings(ctx.Selected()) {
		s.file = map[string]string{}
		return nil
	}
	path, named := s.filePath(ctx)
	file, err := readSettings(path, ctx.Model.Flags)
	if errors.Is(err, fs.ErrNotExist) && !named {
		file, err = map[string]string{}, nil
	}
	s.path, s.file = path, file
	return err
}

// Validate implements kong.Resolver.
func (s *sources) Validate(*kong.Application) error { return nil }

// setting is the text of a setting and the name of the place that has it.
type setting struct{ text, from string }

// Resolve returns the text of a setting, or nil to leave it at its default.
func (s *sources) Resolve(ctx *kong.Context, parent *kong.Path, flag *kong.Flag) (any, error) {
	if parent.App == nil || !isSetting(flag) && flag.Name != "config" {
		return nil, nil // options of a single command are no settings
	}
	if !readsSettings(ctx.Selected()) {
		return nil, nil
	}
	found, err := s.fromEnvironment(flag)
	if found == nil && err == nil && flag.Name != "config" {
		if text, ok := s.file[flag.Name]; ok {
			found = &setting{text, s.path}
		}
	}
	if found == nil || err != nil {
		return nil, err
	}
	// kong decodes it again; here it is decoded to name the source of an invalid value.
	decode := &kong.DecodeContext{Value: flag.Value, Scan: kong.Scan().PushTyped(found.text, kong.FlagValueToken)}
	if err := flag.Mapper.Decode(decode, reflect.New(flag.Target.Type()).Elem()); err != nil {
		return nil, fmt.Errorf("from %s: %w", found.from, err)
	}
	return found.text, nil
}

func (s *sources) fromEnvironment(flag *kong.Flag) (*setting, error) {
	name := envName(flag.Name)
	text, ok := s.env(name)
	if flag.Target.Type() == reflect.TypeFor[weir.Secret]() {
		if path, _ := s.env(name + "_FILE"); path != "" {
			if text != "" {
				return nil, fmt.Errorf("%s and %s_FILE are both set; use one of them", name, name)
			}
			content, err := os.ReadFile(path)
			return &setting{strings.TrimSpace(string(content)), name + "_FILE"}, err
		}
	}
	// An empty variable is a value if the setting can be empty. Otherwise it means "not set", as in
	// the environment of containers.
	kind := flag.Target.Kind()
	if !ok || text == "" && kind != reflect.String && kind != reflect.Slice {
		return nil, nil
	}
	return &setting{text, name}, nil
}

// filePath returns the path of the settings file, and whether the user named it.
func (s *sources) filePath(ctx *kong.Context) (path string, named bool) {
	for _, step := range ctx.Path {
		if step.Flag != nil && step.Flag.Name == "config" {
			return ctx.FlagValue(step.Flag).(string), true
		}
	}
	if path, _ := s.env(envName("config")); path != "" {
		return path, true
	}
	return defaultFile, false
}

// readSettings reads a settings file: one line per setting, named like its flag, with a single
// value or a list. It refuses unknown names, because a misspelt setting would otherwise keep its
// default.
func readSettings(path string, flags []*kong.Flag) (map[string]string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(content, &values); err != nil {
		// Without the lines of the file around it: they may hold a secret.
		return nil, fmt.Errorf("%s: %s", path, yaml.FormatError(err, false, false))
	}
	file := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.ContainsFunc(flags, func(f *kong.Flag) bool { return f.Name == name && isSetting(f) }) {
			return nil, fmt.Errorf("%s: unknown setting %q", path, name)
		}
		text, err := settingText(values[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, name, err)
		}
		file[name] = text
	}
	return file, nil
}

// settingText returns a value of the settings file as on the command line.
func settingText(value any) (string, error) {
	switch value := value.(type) {
	case nil:
		return "", nil
	case string, bool, int, int64, uint64, float64:
		return fmt.Sprint(value), nil
	case []any:
		texts := make([]string, len(value))
		for i, element := range value {
			text, err := settingText(element)
			if err != nil {
				return "", err
			}
			texts[i] = text
		}
		return strings.Join(texts, ","), nil
	default:
		return "", errors.New("must be a single value or a list")
	}
}
