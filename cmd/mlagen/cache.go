package main

import (
	"context"
	"fmt"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/mlagen/mlagen/runtime/cache"
)

func (a *app) cache() *ffcli.Command {
	fs := newFlags("mlagen cache")
	clear := fs.Bool("clear", false, "remove the compiled kernels")
	return &ffcli.Command{
		Name:       "cache",
		ShortUsage: "mlagen cache [-clear]",
		ShortHelp:  "say where compiled kernels are kept, or remove them",
		LongHelp: fmt.Sprintf(`cache prints the directory in which the runtime keeps what a GPU's driver made of
kernels, how many files there are and how many bytes they take: at most about
%d MB, of which what was used longest ago goes first. %s names another
directory, or is %s for none. Removing is safe at any time. Kernels whose warps
change their registers are in the driver's own cache (CUDA_CACHE_PATH) instead.`, cache.DefaultLimit>>20, cache.Variable, cache.Off),
		FlagSet: fs,
		Exec: func(_ context.Context, args []string) error {
			if err := noArguments("cache", args); err != nil {
				return err
			}
			store, err := cache.Default()
			if err != nil {
				return err
			}
			if store == nil {
				_, err := fmt.Fprintf(a.stdout, "%s=%s: kernels are not kept\n", cache.Variable, cache.Off)
				return err
			}
			if *clear {
				if err := store.Clear(); err != nil {
					return err
				}
			}
			entries, size, err := store.Size()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.stdout, "%s: %d files, %d bytes\n", store.Dir(), entries, size)
			return err
		},
	}
}
