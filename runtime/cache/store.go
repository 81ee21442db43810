// Package cache keeps blobs in files, by keys that name everything a blob
// depends on. Any number of processes may use one directory at a time without
// locks: an entry is written beside its place, forced to disk and renamed, and
// holds its key and a hash of itself, so that readers find it whole or not at
// all. What is damaged or not the cache's is ignored, and replaced when its
// key is written.
//
// Entries are plain files with mode 0600 in a directory with mode 0700. They
// are as trustworthy as that directory: a hash keeps accidents out, not an
// owner of the same account. So a directory in which other accounts may write,
// or that is another's, root's aside, is not used.
package cache

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// layout is the sub-directory that holds the entries. A later layout would get
// another, so that programs of both kinds can share a directory.
const layout = "v1"

// DefaultLimit is how many bytes a store keeps.
const DefaultLimit = 256 << 20

// Store is a directory of entries. Its methods may be called concurrently. A
// nil store holds nothing and keeps nothing.
type Store struct {
	dir   string
	limit int64

	mu      sync.Mutex
	swept   bool
	written int64 // bytes since the last sweep
}

// New returns the store in dir, which need not exist: the first Put makes it.
// limit is how many bytes are kept, 0 for DefaultLimit.
func New(dir string, limit int64) *Store {
	if limit <= 0 {
		limit = DefaultLimit
	}
	return &Store{dir: filepath.Join(dir, layout), limit: limit}
}

// Dir returns the directory that holds the entries, "" of a nil store.
func (s *Store) Dir() string {
	if s == nil {
		return ""
	}
	return s.dir
}

// ErrMiss is Get's error where there is no entry.
var ErrMiss = errors.New("not in the cache")

// open opens the directory. Nothing is reached through it that lies elsewhere,
// whatever links are in it.
func (s *Store) open() (*os.Root, error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil && foreign(info) {
		err = fmt.Errorf("cache %s is another account's, who may write to it; use a directory of your own", s.dir)
	} else if err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o022 != 0 {
		err = fmt.Errorf("cache %s has mode %04o: others may write to it; use a directory of your own, or chmod 700", s.dir, info.Mode().Perm())
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// Get returns the blob that was put under the key. The error is ErrMiss where
// there is none, and otherwise says why what is there cannot be used; the
// caller goes on as if there were none.
func (s *Store) Get(k Key) ([]byte, error) {
	if s == nil {
		return nil, ErrMiss
	}
	text, err := k.text()
	if err != nil {
		return nil, err
	}
	root, err := s.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrMiss
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	name := fileName(k.Kind, text)
	data, err := read(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrMiss
	}
	if err != nil {
		return nil, err
	}
	blob, err := decode(text, data)
	if err != nil {
		return nil, fmt.Errorf("cache file %s is %w", filepath.Join(s.dir, name), err)
	}
	return blob, nil
}

// read reads a regular file of a bounded size, and marks it as used. A link, a
// pipe or a device in an entry's place is not followed, waited for or opened.
func read(root *os.Root, name string) ([]byte, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("cache file %s is %v, not a file", filepath.Join(root.Name(), name), info.Mode().Type())
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // should it have become a pipe since
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if size := info.Size(); !info.Mode().IsRegular() || size > maxEntry {
		return nil, fmt.Errorf("cache file %s is %v of %d bytes, not an entry", filepath.Join(root.Name(), name), info.Mode().Type(), size)
	}
	// The file may grow or shrink meanwhile; decode finds out.
	data := make([]byte, 0, info.Size()+1)
	for {
		n, err := f.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) || len(data) == cap(data) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	// What was used lately is evicted last. An hour is exact enough, and a
	// directory that cannot be written serves all the same.
	if now := time.Now(); now.Sub(info.ModTime()) > time.Hour {
		_ = root.Chtimes(name, now, now)
	}
	return data, nil
}

// Put keeps a blob under the key, in place of what is there. It is durable
// when Put returns. Old entries are evicted now and then, so that the store's
// size stays about at its limit.
func (s *Store) Put(k Key, blob []byte) error {
	if s == nil {
		return nil
	}
	text, err := k.text()
	if err != nil {
		return err
	}
	data, err := encode(text, blob)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("make the cache: %w", err)
	}
	root, err := s.open()
	if err != nil {
		return err
	}
	defer root.Close()
	if err := replace(root, fileName(k.Kind, text), data); err != nil {
		return fmt.Errorf("write to the cache %s: %w", s.dir, err)
	}
	if s.due(int64(len(data))) {
		return s.sweep(root, time.Now())
	}
	return nil
}

// replace writes a file in one step: whoever opens name has the old file or
// the new one, whole, also after a crash.
func replace(root *os.Root, name string, data []byte) error {
	var random [16]byte
	rand.Read(random[:]) // it does not fail
	temp := "tmp-" + hex.EncodeToString(random[:])
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		if err = root.Rename(temp, name); err != nil {
			// A directory in an entry's place goes only if it is empty.
			if info, e := root.Lstat(name); e == nil && info.IsDir() && root.Remove(name) == nil {
				err = root.Rename(temp, name)
			}
		}
	}
	if err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	// The rename's own durability: without it a crash leaves the old state,
	// which is whole. Some file systems cannot do this to a directory.
	if d, err := root.Open("."); err == nil {
		_ = d.Sync()
		d.Close()
	}
	return nil
}
