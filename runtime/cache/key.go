package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// Key says what an entry is and names everything that it depends on: two keys
// that differ in anything are two entries.
type Key struct {
	Kind   string // what the entry holds, such as "cubin": a lower-case word
	Fields []Field
}

// Field is one thing that an entry depends on, such as the driver's version.
// Name and value may be any text.
type Field struct{ Name, Value string }

// maxKey bounds a key's text in bytes. Long values belong into a key as their
// hash.
const maxKey = 4096

var kindName = regexp.MustCompile(`^[a-z][a-z0-9]{0,31}$`)

// text writes the key in a form in which no two keys are alike. It is kept in
// the entry, where people can read it too.
func (k *Key) text() (string, error) {
	if !kindName.MatchString(k.Kind) {
		return "", fmt.Errorf("cache key kind was %q, must be a word of a-z and 0-9, 32 bytes at most", k.Kind)
	}
	var b strings.Builder
	b.WriteString(k.Kind)
	for _, f := range k.Fields {
		fmt.Fprintf(&b, "\n%q=%q", f.Name, f.Value)
	}
	if b.Len() > maxKey {
		return "", fmt.Errorf("cache key of kind %s has %d bytes, must be at most %d: put the hash of long values into it", k.Kind, b.Len(), maxKey)
	}
	return b.String(), nil
}

// fileName is the name of the file for a key's text.
func fileName(kind, text string) string {
	sum := sha256.Sum256([]byte(text))
	return kind + "-" + hex.EncodeToString(sum[:])
}

// Names of files that are the cache's. All others are left alone.
var (
	entryName = regexp.MustCompile(`^[a-z][a-z0-9]{0,31}-[0-9a-f]{64}$`)
	tempName  = regexp.MustCompile(`^tmp-[0-9a-f]{32}$`)
)
