//go:build unix

package cache

import (
	"io/fs"
	"os"
	"syscall"
)

// foreign reports whether what info is of belongs to another account: one that
// is neither this process's nor root, who may do anything as it is. Where a
// directory's parent is open to all, as /tmp is, another may have made it first.
func foreign(info fs.FileInfo) bool {
	at, ok := info.Sys().(*syscall.Stat_t)
	return !ok || at.Uid != 0 && int(at.Uid) != os.Geteuid()
}
