//go:build unix

package cache

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// owned is a directory of an account.
type owned struct{ uid int }

func (o owned) Name() string       { return "" }
func (o owned) Size() int64        { return 0 }
func (o owned) Mode() fs.FileMode  { return fs.ModeDir | 0o755 }
func (o owned) ModTime() time.Time { return time.Time{} }
func (o owned) IsDir() bool        { return true }
func (o owned) Sys() any           { return &syscall.Stat_t{Uid: uint32(o.uid)} }

// TestOwner: a directory that another account made, in /tmp perhaps before we
// did, is not used, whatever its mode.
func TestOwner(t *testing.T) {
	me := os.Geteuid()
	for uid, want := range map[int]bool{me: false, 0: false, me + 1: true} {
		if got := foreign(owned{uid}); got != want {
			t.Errorf("of account %d: %v", uid, got)
		}
	}
	s := New(t.TempDir(), 0)
	put(t, s, key("1"), "one")
	if err := os.Chown(s.Dir(), me+1, -1); errors.Is(err, fs.ErrPermission) {
		return // only root can make a directory another's
	} else if err != nil {
		t.Fatal(err)
	}
	_, err := s.Get(key("1"))
	for _, err := range []error{err, s.Put(key("1"), nil)} {
		if err == nil || !strings.Contains(err.Error(), "another account's") {
			t.Errorf("in a directory of another's: %v", err)
		}
	}
}
