//go:build unix

package cache

import "syscall"

// pipe makes a pipe, at which a reader would wait for a writer.
func pipe(name string) error { return syscall.Mkfifo(name, 0o600) }
