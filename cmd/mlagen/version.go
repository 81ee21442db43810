package main

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/peterbourgon/ff/v3/ffcli"
)

func (a *app) version() *ffcli.Command {
	return &ffcli.Command{
		Name:       "version",
		ShortUsage: "mlagen version",
		ShortHelp:  "print the version",
		LongHelp:   "version prints the version of the module, the revision it was built from, and Go's.",
		FlagSet:    newFlags("mlagen version"),
		Exec: func(_ context.Context, args []string) error {
			if err := noArguments("version", args); err != nil {
				return err
			}
			_, err := fmt.Fprintln(a.stdout, versionText(debug.ReadBuildInfo()))
			return err
		},
	}
}

func versionText(info *debug.BuildInfo, ok bool) string {
	if !ok {
		return "mlagen (built without module information)"
	}
	s := "mlagen " + info.Main.Version
	if info.Main.Version == "" {
		s = "mlagen (devel)"
	}
	settings := map[string]string{}
	for _, v := range info.Settings {
		settings[v.Key] = v.Value
	}
	if r := settings["vcs.revision"]; r != "" {
		s += " " + r[:min(12, len(r))]
		if settings["vcs.modified"] == "true" {
			s += "+modified"
		}
	}
	return s + " " + info.GoVersion
}
