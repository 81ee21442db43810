package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
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
// end. A file that already holds the bytes is not touched.
func writeOutputs(stdout io.Writer, outputs ...output) (err error) {
	temps := map[string]string{}
	defer func() {
		for _, temp := range temps {
			err = errors.Join(err, os.Remove(temp))
		}
	}()
	for _, o := range outputs {
		if o.place == "-" {
			continue
		}
		if old, err := os.ReadFile(o.place); err == nil && bytes.Equal(old, o.data) {
			continue
		}
		if at, err := os.Stat(o.place); err == nil && at.IsDir() {
			return unwritten(o.place, syscall.EISDIR)
		}
		temp, err := writeTemp(o)
		if err != nil {
			return err
		}
		temps[o.place] = temp
	}
	for place, temp := range temps {
		if err := os.Rename(temp, place); err != nil {
			return unwritten(place, err)
		}
		delete(temps, place)
	}
	for _, o := range outputs {
		if o.place == "-" {
			if _, err := stdout.Write(o.data); err != nil {
				return fmt.Errorf("standard output: %w", err)
			}
		}
	}
	return nil
}

// unwritten says that the file at place could not be written, and why, without
// the name of the one that was to become it.
func unwritten(place string, err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = path.Err
	} else if link := (*os.LinkError)(nil); errors.As(err, &link) {
		err = link.Err
	}
	return fmt.Errorf("write %s: %w", place, err)
}

// writeTemp writes the output beside its place, durably.
func writeTemp(o output) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(o.place), "."+filepath.Base(o.place)+".*")
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
