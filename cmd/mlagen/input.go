package main

import (
	"fmt"
	"io"
	"os"
)

// maxInput bounds a file that is read whole, in bytes. The largest kernel's text
// is a fiftieth of it; a file may be anybody's, or a device without an end.
const maxInput = 32 << 20

// readFile reads a file.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f, name)
}

// readBounded reads all of r, which people know as name.
func readBounded(r io.Reader, name string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err == nil && len(text) > maxInput {
		err = fmt.Errorf("%s: it is larger than %d bytes, which no kernel or manifest is", name, maxInput)
	}
	return text, err
}
