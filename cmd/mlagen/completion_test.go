package main

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCompletion: every command and every flag is in every script, and shells
// that are there read theirs.
func TestCompletion(t *testing.T) {
	a := &app{}
	for _, shell := range shells {
		code, script, stderr := mlagen("completion", shell)
		if code != 0 || stderr != "" {
			t.Fatalf("%s: exit %d, %s", shell, code, stderr)
		}
		for _, c := range a.commands() {
			if !regexp.MustCompile(`\b` + c.Name + `\b`).MatchString(script) {
				t.Errorf("%s: %s is missing", shell, c.Name)
			}
		}
		for _, w := range a.words() {
			for _, f := range w.flags {
				if !regexp.MustCompile(`-(o )?` + f.name + `\b`).MatchString(script) {
					t.Errorf("%s: %s -%s is missing", shell, w.name, f.name)
				}
			}
		}
		program, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("%s is not here to read its script", shell) // bash is, wherever the checks run
			continue
		}
		cmd := exec.Command(program, "-n")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s -n: %v %s", shell, err, out)
		}
	}
	for _, args := range [][]string{{"completion"}, {"completion", "csh"}, {"completion", "bash", "zsh"}} {
		if code, stdout, stderr := mlagen(args...); code != 2 || stdout != "" || !strings.Contains(stderr, "name a shell: bash, zsh, fish") {
			t.Errorf("%q: exit %d, %s", args, code, stderr)
		}
	}
}

// TestBashCompletes: what bash offers at some places.
func TestBashCompletes(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	_, script, _ := mlagen("completion", "bash")
	for line, want := range map[string]string{
		"mlagen ex":                  "explain",
		"mlagen emit -kernel absorb": "absorb-decode absorb-q absorb-o",
		"mlagen emit -dtype ":        "bf16 fp16",
		"mlagen bind -op ":           "decode prefill",
		"mlagen check -op a":         "absorb append",
		"mlagen completion ":         "bash zsh fish",
		"mlagen list -j":             "-json",
		"mlagen verify complet":      "completion.go completion_test.go",
		"mlagen emit -o complet":     "completion.go completion_test.go",
	} {
		words := strings.Split(line, " ")
		quoted := "'" + strings.Join(words, "' '") + "'"
		cmd := exec.Command(bash, "-c", script+"\nCOMP_WORDS=("+quoted+"); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _mlagen; echo \"${COMPREPLY[*]}\"")
		out, err := cmd.CombinedOutput()
		got := strings.Fields(string(out))
		if strings.HasPrefix(want, "completion") {
			slices.Sort(got) // as the folder has them
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %v %q, want %q", line, err, out, want)
		}
	}
}

// TestFlagValues: what is offered is taken.
func TestFlagValues(t *testing.T) {
	for _, op := range flagValues("bench", "op") {
		_, _, stderr := mlagen("bench", "-op", op, "-device", "none")
		if stderr == "" || strings.Contains(stderr, "cannot be timed") {
			t.Errorf("bench -op %s: %s", op, stderr)
		}
	}
	for _, op := range flagValues("bind", "op") {
		if _, _, stderr := mlagen("bind", "-op", op, "-out-dir", "none"); !strings.Contains(stderr, "is no folder") {
			t.Errorf("bind -op %s: %s", op, stderr)
		}
	}
	for _, op := range flagValues("check", "op") {
		if _, _, stderr := mlagen("check", "-random", "1", "-op", op, "-failures", "/dev/null/none"); !strings.Contains(stderr, "/dev/null") {
			t.Errorf("check -op %s: %s", op, stderr)
		}
	}
	for kernel, name := range map[string]string{"append-kv": "rotate", "absorb-decode": "evict", "merge-states": "dtype"} {
		for _, value := range flagValues("emit", name) {
			if code, _, stderr := mlagen("emit", "-kernel", kernel, "-"+name, value); code != 0 {
				t.Error(stderr)
			}
		}
	}
	for _, value := range flagValues("emit", "partial") {
		dtype := strings.Replace(value, "f32", "bf16", 1)
		if code, _, stderr := mlagen("emit", "-kernel", "merge-states", "-dtype", dtype, "-partial", value); code != 0 {
			t.Error(stderr)
		}
	}
}

// TestExamples: every command has examples, their flags exist, and they name a
// command.
func TestExamples(t *testing.T) {
	a := &app{}
	commands := a.commands()
	for _, c := range commands {
		if len(examples[c.Name]) == 0 {
			t.Errorf("%s has no example: cmd/mlagen/examples.go", c.Name)
		}
		if code, stdout, _ := mlagen(c.Name, "-h"); code != 0 || !strings.Contains(stdout, "\nexamples:\n  mlagen ") {
			t.Errorf("%s -h: exit %d, %s", c.Name, code, stdout)
		}
	}
	for of, lines := range examples {
		for _, line := range lines {
			for part := range strings.SplitSeq(line, " | ") {
				part, _, _ = strings.Cut(part, " > ")
				args := strings.Fields(part)
				if len(args) < 2 || args[0] != "mlagen" {
					t.Fatalf("%s: %q", of, line)
				}
				found := false
				for _, c := range a.commands() { // anew: flags are set once
					if c.Name == args[1] {
						found = true
						if err := c.FlagSet.Parse(args[2:]); err != nil {
							t.Errorf("%q: %v", line, err)
						}
					}
				}
				if !found {
					t.Errorf("%q: no such command", line)
				}
			}
		}
	}
}
