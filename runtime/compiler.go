package runtime

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"

	"github.com/mlagen/mlagen/runtime/cache"
)

// Compiler is implemented by drivers that can compile a text apart from
// loading it. Loading then compiles texts side by side, and keeps what came of
// them for other processes.
type Compiler interface {
	// Toolchain names what an image depends on besides its text.
	Toolchain() Toolchain
	// Compile compiles PTX text; a failure carries the compiler's log. Unlike a
	// Driver's methods it may be called while others, itself among them, are
	// running. Where the driver hands out no code for a text (see WholeProgram), it
	// loads the module at once.
	Compile(ptx []byte) (Image, error)
	// LoadImage loads the code of an image that Compile of a like toolchain made,
	// be it in another process. The module's log is empty.
	LoadImage(code []byte) (Module, error)
}

// Toolchain is everything that decides, with the text, about an image.
type Toolchain struct {
	Card    string // model and compute capability: the images of one do for another like it
	Driver  string // its exact version
	Options string // of the compiler

	// Kept says that an image is worth a file: it takes longer to make than to
	// read.
	Kept bool
}

// Image is a compiled text.
type Image struct {
	Code    []byte
	Log     string  // what the compiler said, empty when nothing
	Seconds float64 // wall time that it took

	// Module is there in place of Code where the text had to be loaded to be
	// compiled. It is one kernel's, and the caller's to unload.
	Module Module
}

// WholeProgram reports whether a text must be compiled as a whole program,
// because it changes the registers of warps. A compiler that makes code to be
// linked with other code, as cuLink does and ptxas -c, ignores setmaxnreg "to
// maintain compatibility across compilation units" (C7504): roles that count on
// more registers than the launch gives them spill. A text that has the word in a
// comment only is compiled rightly either way.
func WholeProgram(ptx []byte) bool { return bytes.Contains(ptx, []byte("setmaxnreg.")) }

// imageFormat is the version of pack's layout.
const imageFormat = "1"

// imageKey is the cache key of a text's image. Whatever decides about an image
// is in it.
func imageKey(t Toolchain, text [sha256.Size]byte) cache.Key {
	return cache.Key{Kind: "image", Fields: []cache.Field{
		{Name: "format", Value: imageFormat},
		{Name: "ptx sha256", Value: hex.EncodeToString(text[:])},
		{Name: "card", Value: t.Card},
		{Name: "driver", Value: t.Driver},
		{Name: "options", Value: t.Options},
	}}
}

// imageHeader is the length of what pack puts before log and code.
const imageHeader = 4

// pack writes an image as a blob: the log's length, log and code. How long it
// took to make is nobody's who has it.
func (m *Image) pack() []byte {
	blob := make([]byte, 0, imageHeader+len(m.Log)+len(m.Code))
	blob = binary.LittleEndian.AppendUint32(blob, uint32(len(m.Log)))
	blob = append(blob, m.Log...)
	return append(blob, m.Code...)
}

// unpackImage reads what pack wrote.
func unpackImage(blob []byte) (Image, error) {
	if len(blob) <= imageHeader {
		return Image{}, errors.New("too short for an image")
	}
	log, rest := uint64(binary.LittleEndian.Uint32(blob)), blob[imageHeader:]
	if log >= uint64(len(rest)) {
		return Image{}, errors.New("an image without code")
	}
	return Image{Log: string(rest[:log]), Code: rest[log:]}, nil
}
