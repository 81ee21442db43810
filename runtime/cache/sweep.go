package cache

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"
)

// tempAge is how old a temporary file must be to be a leftover of a process
// that was killed.
const tempAge = time.Hour

// sweepShare of the limit may be written between two sweeps.
const sweepShare = 16

// due reports whether a sweep should follow a write of so many bytes: after a
// store's first, and whenever a share of the limit has been written since.
func (s *Store) due(bytes int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written += bytes
	if s.swept && s.written < s.limit/sweepShare {
		return false
	}
	s.swept, s.written = true, 0
	return true
}

// found is a file of the cache.
type found struct {
	name string
	size int64
	used time.Time
	temp bool
}

// files lists the cache's files and nothing else. One that goes away meanwhile
// is left out.
func files(root *os.Root) (all []found, err error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		temp := tempName.MatchString(name)
		if !temp && !entryName.MatchString(name) {
			continue
		}
		info, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, found{name, info.Size(), info.ModTime(), temp})
	}
	return all, nil
}

// sweep removes leftovers, and the entries that were used longest ago until
// the others fit the limit.
func (s *Store) sweep(root *os.Root, now time.Time) error {
	all, err := files(root)
	if err != nil {
		return err
	}
	var entries []found
	total := int64(0)
	for _, f := range all {
		switch {
		case !f.temp:
			entries = append(entries, f)
			total += f.size
		case now.Sub(f.used) > tempAge:
			err = errors.Join(err, remove(root, f.name))
		}
	}
	slices.SortFunc(entries, func(a, b found) int { return a.used.Compare(b.used) })
	for _, f := range entries {
		if total <= s.limit {
			break
		}
		err = errors.Join(err, remove(root, f.name))
		total -= f.size
	}
	return err
}

// remove removes a file; another process may have done so.
func remove(root *os.Root, name string) error {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Size returns how many entries there are and how many bytes they take.
func (s *Store) Size() (entries int, bytes int64, err error) {
	err = s.each(func(_ *os.Root, f found) error {
		if !f.temp {
			entries++
			bytes += f.size
		}
		return nil
	})
	return entries, bytes, err
}

// Clear removes all entries, and what killed processes have left. Files that
// are not the cache's stay.
func (s *Store) Clear() error {
	return s.each(func(root *os.Root, f found) error { return remove(root, f.name) })
}

// each calls do with each file of the cache.
func (s *Store) each(do func(*os.Root, found) error) error {
	if s == nil {
		return nil
	}
	root, err := s.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	all, err := files(root)
	for _, f := range all {
		err = errors.Join(err, do(root, f))
	}
	return err
}
