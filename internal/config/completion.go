package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completed is a command as shells complete it.
type completed struct {
	path     []string // such as key, create; empty = the program itself
	help     string
	children []string
	flags    []completedFlag
}

type completedFlag struct {
	name, help string
	value      bool // it has one
}

func (c completed) flagNames() string {
	var names []string
	for _, flag := range c.flags {
		names = append(names, "--"+flag.name)
	}
	return strings.Join(names, " ")
}

// Completion returns a script that completes the commands and their flags in a shell: bash, zsh or fish.
// commands is as for [Parse].
func Completion(commands any, shell string) (string, error) {
	parser, err := newParser(commands)
	if err != nil {
		return "", err
	}
	all := completions(parser.Model, parser.Model.Node, nil)
	switch shell {
	case "bash":
		return bashScript(all), nil
	case "zsh":
		return zshScript(all), nil
	case "fish":
		return fishScript(all), nil
	}
	return "", fmt.Errorf("there is no completion for %q; use bash, zsh or fish", shell)
}

// completions returns a command and all those below it.
func completions(app *kong.Application, node *kong.Node, path []string) []completed {
	here := completed{path: path, help: node.Help}
	of := node
	if len(path) == 0 {
		of = app.DefaultCmd // weir --http :9000 is weir serve --http :9000
	}
	for _, flag := range app.Flags {
		if counts(of, flag) || len(path) == 0 && counts(nil, flag) {
			here.flags = append(here.flags, completedFlag{flag.Name, flag.Help, !flag.IsBool()})
		}
	}
	if len(path) > 0 {
		for _, flag := range node.Flags {
			here.flags = append(here.flags, completedFlag{flag.Name, flag.Help, !flag.IsBool()})
		}
	}
	below := []completed{}
	for _, child := range node.Children {
		here.children = append(here.children, child.Name)
		below = append(below, completions(app, child, append(slices.Clone(path), child.Name))...)
	}
	return append([]completed{here}, below...)
}

// shellTable returns a function of bash and zsh that sets the variables commands and flags for a command, and
// fails for anything else.
func shellTable(all []completed) string {
	var text strings.Builder
	text.WriteString("_weir_of() {\n  case \"$1\" in\n")
	for _, c := range all {
		fmt.Fprintf(&text, "    '%s') commands='%s' flags='%s' ;;\n", strings.Join(c.path, " "), strings.Join(c.children, " "), c.flagNames())
	}
	text.WriteString("    *) return 1 ;;\n  esac\n}\n")
	return text.String()
}

func bashScript(all []completed) string {
	return "# Completion of weir for bash. To use it: source <(weir completion bash)\n" + shellTable(all) + `_weir() {
  local commands flags at= word cur="${COMP_WORDS[COMP_CWORD]}"
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    _weir_of "${at:+$at }$word" && at="${at:+$at }$word"
  done
  _weir_of "$at"
  case "$cur" in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$cur")) ;;
    *) COMPREPLY=($(compgen -W "$commands" -- "$cur")) ;;
  esac
}
complete -o default -F _weir weir
`
}

func zshScript(all []completed) string {
	return "#compdef weir\n# Completion of weir for zsh. To use it: source <(weir completion zsh)\n" + shellTable(all) + `_weir() {
  local commands flags at= word
  for word in "${(@)words[2,CURRENT-1]}"; do
    _weir_of "${at:+$at }$word" && at="${at:+$at }$word"
  done
  _weir_of "$at"
  if [[ "$PREFIX" == -* ]]; then
    compadd -- ${=flags}
  elif [[ -n "$commands" ]]; then
    compadd -- ${=commands}
  else
    _files
  fi
}
compdef _weir weir
`
}

func fishScript(all []completed) string {
	var text strings.Builder
	text.WriteString("# Completion of weir for fish. To use it: weir completion fish | source\n")
	quote := func(s string) string { return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'" }
	help := map[string]string{}
	for _, c := range all {
		help[strings.Join(c.path, " ")] = c.help
	}
	for _, c := range all {
		condition := "__fish_use_subcommand"
		if len(c.path) > 0 {
			var seen []string
			for _, name := range c.path {
				seen = append(seen, "__fish_seen_subcommand_from "+name)
			}
			condition = strings.Join(seen, "; and ")
		}
		for _, child := range c.children {
			when := condition
			if len(c.path) > 0 {
				when += "; and not __fish_seen_subcommand_from " + strings.Join(c.children, " ")
			}
			fmt.Fprintf(&text, "complete -c weir -f -n %s -a %s -d %s\n", quote(when), child, quote(help[strings.Join(append(slices.Clone(c.path), child), " ")]))
		}
		for _, flag := range c.flags {
			value := ""
			if flag.value {
				value = " -r"
			}
			fmt.Fprintf(&text, "complete -c weir -n %s -l %s%s -d %s\n", quote(condition), flag.name, value, quote(flag.help))
		}
	}
	return text.String()
}
