package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/ptx/verify"
)

func (a *app) verify() *ffcli.Command {
	fs := newFlags("mlagen verify")
	return &ffcli.Command{
		Name:       "verify",
		ShortUsage: "mlagen verify FILE...",
		ShortHelp:  "check PTX files against the static rules",
		LongHelp: `verify parses PTX files and prints what breaks a rule, one finding a line as
file:line:col: rule: text. A manifest beside a file (the same name with .json)
is taken into account. - reads standard input. Findings give exit status 1.`,
		FlagSet: fs,
		Exec: func(_ context.Context, args []string) error {
			if len(args) == 0 {
				return usagef("verify needs PTX files")
			}
			clean := true
			for _, file := range args {
				findings, err := a.verifyFile(file)
				if err != nil {
					return err
				}
				for _, f := range findings {
					clean = false
					if _, err := fmt.Fprintln(a.stdout, f); err != nil {
						return err
					}
				}
			}
			if !clean {
				return errQuiet
			}
			return nil
		},
	}
}

// verifyFile returns the findings on one file. Text that does not parse is a
// finding too.
func (a *app) verifyFile(file string) ([]verify.Diagnostic, error) {
	var text []byte
	var err error
	var man *manifest.Manifest
	name := file
	if file == "-" {
		name = "<standard input>"
		text, err = readBounded(a.stdin, name)
	} else if text, err = readFile(file); err == nil {
		man, err = readManifest(strings.TrimSuffix(file, filepath.Ext(file)) + ".json")
	}
	if err != nil {
		return nil, err
	}
	m, err := ptx.Parse(name, text)
	var syntax *ptx.Error
	if errors.As(err, &syntax) {
		return []verify.Diagnostic{{File: syntax.File, Line: syntax.Line, Col: syntax.Col, Rule: "syntax", Text: syntax.Msg}}, nil
	}
	if err != nil {
		return nil, err
	}
	return verify.Module(name, m, man), nil
}

// readManifest reads a manifest that may be absent.
func readManifest(file string) (*manifest.Manifest, error) {
	text, err := readFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := manifest.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return m, nil
}
