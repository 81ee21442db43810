package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/templates"
)

var shells = []string{"bash", "zsh", "fish"}

func (a *app) completion() *ffcli.Command {
	return &ffcli.Command{
		Name:       "completion",
		ShortUsage: "mlagen completion bash|zsh|fish",
		ShortHelp:  "print a script that completes command lines in a shell",
		LongHelp: `completion prints a script for a shell, with the commands, their flags, and the
values of flags that have few. In the shell at hand:

    source <(mlagen completion bash)
    source <(mlagen completion zsh)
    mlagen completion fish | source`,
		FlagSet: newFlags("mlagen completion"),
		Exec: func(_ context.Context, args []string) error {
			if len(args) != 1 || !slices.Contains(shells, args[0]) {
				return usagef("name a shell: %s", strings.Join(shells, ", "))
			}
			commands := a.words()
			script := map[string]func([]commandWords) string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}[args[0]]
			_, err := fmt.Fprint(a.stdout, script(commands))
			return err
		},
	}
}

// commandWords is what can follow a command.
type commandWords struct {
	name, help string
	flags      []flagWords
	words      []string // arguments that are no flags and no files
}

type flagWords struct {
	name, help string
	value      bool     // it takes one
	values     []string // those there are, empty: any, or a file
}

// words lists the commands as the program has them.
func (a *app) words() []commandWords {
	var list []commandWords
	for _, c := range a.commands() {
		w := commandWords{name: c.Name, help: c.ShortHelp}
		if c.Name == "completion" {
			w.words = shells
		}
		c.FlagSet.VisitAll(func(f *flag.Flag) {
			_, text := flag.UnquoteUsage(f)
			boolean, ok := f.Value.(interface{ IsBoolFlag() bool })
			w.flags = append(w.flags, flagWords{name: f.Name, help: text, value: !ok || !boolean.IsBoolFlag(), values: flagValues(c.Name, f.Name)})
		})
		list = append(list, w)
	}
	return list
}

// flagValues are the values of a flag that has few.
func flagValues(command, name string) []string {
	switch name {
	case "kernel":
		var names []string
		for _, k := range templates.Kernels() {
			names = append(names, k.Name)
		}
		return names
	case "dtype":
		return []string{"bf16", "fp16"}
	case "device":
		return []string{"emu", "cuda"}
	case "rotate":
		return []string{"interleaved", "half"}
	case "partial":
		return []string{"f32", "bf16", "fp16"}
	case "evict":
		return []string{"normal"}
	case "op":
		switch command {
		case "bind":
			return []string{"decode", "prefill"}
		case "check":
			return cases.Ops
		}
		return []string{"decode", "schedule", "prefill", "extend", "upproject", "absorb", "load", "stream"}
	}
	return nil
}

func names(commands []commandWords) string {
	var list []string
	for _, c := range commands {
		list = append(list, c.name)
	}
	return strings.Join(list, " ")
}

func bashScript(commands []commandWords) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# bash completion for mlagen; made by: mlagen completion bash")
	line("_mlagen() {")
	line(`	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} words=""`)
	line("	COMPREPLY=()")
	line(`	if ((COMP_CWORD == 1)); then`)
	line("		COMPREPLY=($(compgen -W %q -- \"$word\"))", names(commands))
	line("		return\n	fi")
	line("	case $command,$before in")
	for _, c := range commands {
		for _, f := range c.flags {
			if len(f.values) > 0 {
				line("	%s,-%s) words=%q ;;", c.name, f.name, strings.Join(f.values, " "))
			} else if f.value {
				line("	%s,-%s) COMPREPLY=($(compgen -f -- \"$word\")); return ;;", c.name, f.name)
			}
		}
	}
	line("	*)")
	line("		case $command in")
	for _, c := range commands {
		list := slices.Clone(c.words)
		for _, f := range c.flags {
			list = append(list, "-"+f.name)
		}
		line("		%s) words=%q ;;", c.name, strings.Join(list, " "))
	}
	line("		esac ;;")
	line("	esac")
	line(`	if [[ -n $words && ($word == -* || $words != -* || -z $word) ]]; then`)
	line(`		COMPREPLY=($(compgen -W "$words" -- "$word"))`)
	line("	else")
	line(`		COMPREPLY=($(compgen -f -- "$word"))`)
	line("	fi\n}\ncomplete -o filenames -F _mlagen mlagen")
	return b.String()
}

// zshScript describes commands and flags to _arguments.
func zshScript(commands []commandWords) string {
	quote := func(s string) string {
		return strings.NewReplacer("'", "’", ":", `\:`, "[", "(", "]", ")").Replace(s)
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("#compdef mlagen\n# zsh completion for mlagen; made by: mlagen completion zsh")
	line("_mlagen() {\n	local -a commands\n	commands=(")
	for _, c := range commands {
		line("		'%s:%s'", c.name, quote(c.help))
	}
	line("	)\n	if ((CURRENT == 2)); then\n		_describe command commands\n		return\n	fi")
	line("	local command=$words[2]\n	shift words\n	((CURRENT--))\n	case $command in")
	for _, c := range commands {
		line("	%s)", c.name)
		var specs []string
		for _, f := range c.flags {
			spec := fmt.Sprintf("-%s[%s]", f.name, quote(f.help))
			if len(f.values) > 0 {
				spec += fmt.Sprintf(":%s:(%s)", f.name, strings.Join(f.values, " "))
			} else if f.value {
				spec += fmt.Sprintf(":%s:_files", f.name)
			}
			specs = append(specs, "'"+spec+"'")
		}
		rest := "'*:file:_files'"
		if len(c.words) > 0 {
			rest = fmt.Sprintf("'1:%s:(%s)'", c.name, strings.Join(c.words, " "))
		}
		line("		_arguments %s ;;", strings.Join(append(specs, rest), " \\\n			"))
	}
	line("	esac\n}\ncompdef _mlagen mlagen")
	return b.String()
}

func fishScript(commands []commandWords) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "’") + "'" }
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# fish completion for mlagen; made by: mlagen completion fish")
	for _, c := range commands {
		line("complete -c mlagen -n __fish_use_subcommand -f -a %s -d %s", c.name, quote(c.help))
		on := fmt.Sprintf("-n '__fish_seen_subcommand_from %s'", c.name)
		if len(c.words) > 0 {
			line("complete -c mlagen %s -f -a %s", on, quote(strings.Join(c.words, " ")))
		}
		for _, f := range c.flags {
			text := fmt.Sprintf("complete -c mlagen %s -o %s -d %s", on, f.name, quote(f.help))
			if len(f.values) > 0 {
				text += " -x -a " + quote(strings.Join(f.values, " "))
			} else if f.value {
				text += " -r"
			}
			line("%s", text)
		}
	}
	return b.String()
}
