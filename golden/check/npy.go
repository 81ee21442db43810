package check

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// writeNPY writes an array of any rank, C order, in NumPy's format version
// 1.0. It is written here because npyio's writer has no arrays of rank above
// two and loses the shape of empty ones.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
func writeNPY[T float32 | int32](file string, shape []int, data []T) error {
	n := 1
	for _, d := range shape {
		n *= d
	}
	if n != len(data) {
		return fmt.Errorf("%s: shape %v does not hold %d elements", file, shape, len(data))
	}
	descr := "<f4"
	if _, ok := any(data).([]int32); ok {
		descr = "<i4"
	}
	dims := make([]string, len(shape))
	for i, d := range shape {
		dims[i] = fmt.Sprintf("%d,", d)
	}
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, strings.Join(dims, " "))
	const prefix = 10 // magic, version and header length; the data starts at a multiple of 64
	header += strings.Repeat(" ", 63-(prefix+len(header))%64) + "\n"

	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	w.WriteString("\x93NUMPY\x01\x00")
	binary.Write(w, binary.LittleEndian, uint16(len(header)))
	w.WriteString(header)
	err = binary.Write(w, binary.LittleEndian, data)
	if e := w.Flush(); err == nil { // Flush returns the first error of the writes above
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
