package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// output is bytes for a place: a file, or "-" for standard output.
type output struct {
	place string
	data  []byte
}

// writeOutputs writes all of the outputs or, as far as a file system allows,
// none: files are written beside their place first and renamed into it at the
// end. A file that already holds the bytes is not touched. What is no file, such
// as a pipe or /dev/null, is never replaced by one: it is written into, last.
func writeOutputs(stdout io.Writer, outputs ...output) (err error) {
	direct, err := writeFiles(outputs)
	if err != nil {
		return err
	}
	for _, o := range direct {
		if err := o.writeInto(stdout); err != nil {
			return err
		}
	}
	return nil
}

// writeFiles writes the outputs that become files, and returns the others. An
// interrupt in between, which lasts milliseconds, is not heeded, so that nothing
// stays beside their places.
func writeFiles(outputs []output) (direct []output, err error) {
	_, heed := signal.NotifyContext(context.Background(), os.Interrupt)
	defer heed()
	temps := map[string]string{} // by what they become
	defer func() {
		for _, temp := range temps {
			err = errors.Join(err, os.Remove(temp))
		}
	}()
	for _, o := range outputs {
		target, regular, err := resolve(o.place)
		switch {
		case err != nil:
			return nil, unwritten(o.place, err)
		case !regular:
			direct = append(direct, o)
			continue
		case temps[target] != "":
			return nil, usagef("two outputs are both %s", target)
		}
		if old, err := os.ReadFile(target); err == nil && bytes.Equal(old, o.data) {
			continue
		}
		if temps[target], err = writeTemp(target, o); err != nil {
			delete(temps, target)
			return nil, err
		}
	}
	for target, temp := range temps {
		if err := os.Rename(temp, target); err != nil {
			return nil, unwritten(target, err)
		}
		delete(temps, target)
	}
	return direct, nil
}

// resolve follows links from a place to the file there or to be there; regular
// is false for what is there and no file.
func resolve(place string) (target string, regular bool, err error) {
	if place == "-" {
		return place, false, nil
	}
	at, err := os.Stat(place)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return filepath.Clean(place), true, nil
	case err != nil:
		return place, false, err
	case at.IsDir():
		return place, false, syscall.EISDIR
	case !at.Mode().IsRegular():
		return place, false, nil
	}
	if target, err = filepath.EvalSymlinks(place); err != nil {
		return place, false, nil // an open file without a name, behind a link of /proc
	}
	return target, true, nil
}

// writeInto writes the output to standard output, or into what is at its place.
func (o output) writeInto(stdout io.Writer) error {
	if o.place == "-" {
		if _, err := stdout.Write(o.data); err != nil {
			return fmt.Errorf("standard output: %w", err)
		}
		return nil
	}
	f, err := os.OpenFile(o.place, os.O_WRONLY, 0)
	if err != nil {
		return unwritten(o.place, err)
	}
	_, err = f.Write(o.data)
	if err = errors.Join(err, f.Close()); err != nil {
		return unwritten(o.place, err)
	}
	return nil
}

// unwritten says that nothing could be written at place, and why, without the
// name of the file that was to be renamed.
func unwritten(place string, err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = path.Err
	} else if link := (*os.LinkError)(nil); errors.As(err, &link) {
		err = link.Err
	}
	return fmt.Errorf("write %s: %w", place, err)
}

// writeTemp writes the output beside its target, durably.
func writeTemp(target string, o output) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(target), "."+filepath.Base(target)+".*")
	if err != nil {
		return "", unwritten(o.place, err)
	}
	_, err = f.Write(o.data)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err != nil {
		return "", errors.Join(unwritten(o.place, err), os.Remove(f.Name()))
	}
	return f.Name(), nil
}
