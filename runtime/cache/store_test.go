package cache

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func key(value string) Key { return Key{"test", []Field{{"x", value}}} }

// file returns the file of a key's entry.
func file(t *testing.T, s *Store, k Key) string {
	t.Helper()
	text, err := k.text()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(s.Dir(), fileName(k.Kind, text))
}

func put(t *testing.T, s *Store, k Key, blob string) {
	t.Helper()
	if err := s.Put(k, []byte(blob)); err != nil {
		t.Fatal(err)
	}
}

func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := New(dir, 0)
	if _, err := s.Get(key("1")); !errors.Is(err, ErrMiss) {
		t.Errorf("before anything was put: %v", err)
	}
	put(t, s, key("1"), "one")
	put(t, s, key("2"), "two")
	put(t, s, key("1"), "one again")
	for name, want := range map[string]string{"1": "one again", "2": "two"} {
		if got, err := New(dir, 0).Get(key(name)); err != nil || string(got) != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	if _, err := s.Get(key("3")); !errors.Is(err, ErrMiss) {
		t.Errorf("what was not put: %v", err)
	}
	if n, bytes, err := s.Size(); n != 2 || bytes < 12 || err != nil {
		t.Errorf("%d entries, %d bytes, %v", n, bytes, err)
	}
	foreign := filepath.Join(s.Dir(), "README")
	if err := os.WriteFile(foreign, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Clear(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(key("1")); !errors.Is(err, ErrMiss) {
		t.Errorf("after it was cleared: %v", err)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("a file that is not the cache's: %v", err)
	}
}

func TestNilStore(t *testing.T) {
	var s *Store
	if _, err := s.Get(key("1")); !errors.Is(err, ErrMiss) {
		t.Error(err)
	}
	if n, _, err := s.Size(); n != 0 || errors.Join(err, s.Put(key("1"), nil), s.Clear()) != nil || s.Dir() != "" {
		t.Error("a nil store is not empty")
	}
}

func TestModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no modes")
	}
	s := New(filepath.Join(t.TempDir(), "cache"), 0)
	put(t, s, key("1"), "one")
	for name, want := range map[string]fs.FileMode{filepath.Dir(s.Dir()): 0o700, s.Dir(): 0o700, file(t, s, key("1")): 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
	if err := os.Chmod(s.Dir(), 0o770); err != nil {
		t.Fatal(err)
	}
	_, err := s.Get(key("1"))
	for _, err := range []error{err, s.Put(key("1"), nil)} {
		if err == nil || !strings.Contains(err.Error(), "others may write to it") {
			t.Errorf("in a directory of a group's: %v", err)
		}
	}
}

// TestPlaces: what lies in an entry's place is neither followed nor waited
// for, and is replaced.
func TestPlaces(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	for name, make := range map[string]func(string) error{
		"empty":             func(f string) error { return os.WriteFile(f, nil, 0o600) },
		"foreign":           func(f string) error { return os.WriteFile(f, bytes.Repeat([]byte("x"), 1000), 0o600) },
		"large":             func(f string) error { return errors.Join(os.WriteFile(f, nil, 0o600), os.Truncate(f, 1<<40)) },
		"pipe":              pipe,
		"folder":            func(f string) error { return os.Mkdir(f, 0o700) },
		"link outside":      func(f string) error { return os.Symlink(outside, f) },
		"link to a device":  func(f string) error { return os.Symlink("/dev/zero", f) },
		"link to itself":    func(f string) error { return os.Symlink(filepath.Base(f), f) },
		"link to its twin":  func(f string) error { return os.Symlink(filepath.Base(f)+"x", f) },
		"file without mode": func(f string) error { return os.WriteFile(f, []byte("x"), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			s := New(t.TempDir(), 0)
			put(t, s, key("1"), "one")
			f := file(t, s, key("1"))
			if err := errors.Join(os.WriteFile(outside, []byte("outside"), 0o600), os.Remove(f), make(f)); err != nil {
				t.Fatal(err)
			}
			if blob, err := s.Get(key("1")); err == nil {
				t.Errorf("got %q", blob)
			}
			put(t, s, key("1"), "two")
			if blob, err := s.Get(key("1")); err != nil || string(blob) != "two" {
				t.Errorf("after it was replaced: %q, %v", blob, err)
			}
			if data, err := os.ReadFile(outside); err != nil || string(data) != "outside" {
				t.Errorf("a file outside became %q, %v", data, err)
			}
		})
	}
}

// TestNothingIsLeft: a write that fails leaves no temporary file.
func TestNothingIsLeft(t *testing.T) {
	s := New(t.TempDir(), 0)
	put(t, s, key("1"), "one")
	f := file(t, s, key("2"))
	if err := errors.Join(os.Mkdir(f, 0o700), os.WriteFile(filepath.Join(f, "mine"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(key("2"), []byte("two")); err == nil || !strings.Contains(err.Error(), "write to the cache") {
		t.Errorf("over somebody's folder: %v", err)
	}
	names, err := os.ReadDir(s.Dir())
	if err != nil || len(names) != 2 {
		t.Errorf("%v, %v", names, err)
	}
}

func TestEviction(t *testing.T) {
	s := New(t.TempDir(), 10_000)
	now := time.Now()
	blob := strings.Repeat("x", 3000)
	for i := range 3 {
		put(t, s, key(fmt.Sprint(i)), blob)
		then := now.Add(time.Duration(i-10) * 2 * time.Hour)
		if err := os.Chtimes(file(t, s, key(fmt.Sprint(i))), then, then); err != nil {
			t.Fatal(err)
		}
	}
	// 0 is the oldest, and is used; of leftovers only the old one goes.
	if _, err := s.Get(key("0")); err != nil {
		t.Fatal(err)
	}
	old, young := filepath.Join(s.Dir(), "tmp-"+strings.Repeat("0", 32)), filepath.Join(s.Dir(), "tmp-"+strings.Repeat("1", 32))
	foreign := filepath.Join(s.Dir(), "large")
	if err := errors.Join(os.WriteFile(old, nil, 0o600), os.WriteFile(young, nil, 0o600), os.Chtimes(old, now, now.Add(-2*tempAge)),
		os.WriteFile(foreign, make([]byte, 20_000), 0o600)); err != nil {
		t.Fatal(err)
	}
	put(t, New(filepath.Dir(s.Dir()), 10_000), key("3"), blob)
	for i, want := range []bool{true, false, true, true} {
		if _, err := s.Get(key(fmt.Sprint(i))); (err == nil) != want {
			t.Errorf("entry %d: %v", i, err)
		}
	}
	for f, want := range map[string]bool{old: false, young: true, foreign: true} {
		if _, err := os.Stat(f); (err == nil) != want {
			t.Errorf("%s: %v", f, err)
		}
	}
	// Every now and then a store looks again.
	for i := range 20 {
		put(t, s, key(fmt.Sprint("later ", i)), blob)
	}
	if n, bytes, err := s.Size(); bytes > 10_000+10_000/sweepShare+4000 || err != nil {
		t.Errorf("%d entries, %d bytes, %v", n, bytes, err)
	}
}

func TestDefault(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", "")
	for value, want := range map[string]string{"": "mlagen/v1", "off": "", "/x/y": "/x/y/v1", "rel": "rel/v1"} {
		t.Setenv(Variable, value)
		s, err := Default()
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Dir(); !strings.HasSuffix(got, want) || want == "" && got != "" || got != "" && !filepath.IsAbs(got) {
			t.Errorf("%s=%s: %q", Variable, value, got)
		}
	}
	// A cache that follows the working directory would be another one everywhere.
	t.Setenv(Variable, "")
	t.Setenv("HOME", "rel")
	if s, err := Default(); err == nil && !filepath.IsAbs(s.Dir()) {
		t.Errorf("HOME=rel: %q", s.Dir())
	}
}
