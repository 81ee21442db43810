package cache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// An entry describes itself, so that whatever lies in its place is known for
// what it is: not ours, of another version, for another key, cut off, or
// altered. Numbers are little-endian.
//
//	offset  bytes
//	     0      8  magic
//	     8      4  version of this format
//	    12      4  length of the key's text
//	    16      8  length of the blob
//	    24     32  SHA-256 of everything else from offset 8
//	    56         the key's text, then the blob
const (
	magic         = "mlagen\r\n" // a file that was copied as text is no longer this
	formatVersion = 1
	headerBytes   = 56
	hashOffset    = 24
)

// MaxBlob is the largest blob that an entry holds, in bytes. Larger files are
// never read.
const MaxBlob = 64 << 20

// maxEntry is the size of the largest entry.
const maxEntry = headerBytes + maxKey + MaxBlob

// encode makes an entry.
func encode(key string, blob []byte) ([]byte, error) {
	if len(blob) > MaxBlob {
		return nil, fmt.Errorf("cache blob has %d bytes, must be at most %d", len(blob), MaxBlob)
	}
	data := make([]byte, 0, headerBytes+len(key)+len(blob))
	data = append(data, magic...)
	data = binary.LittleEndian.AppendUint32(data, formatVersion)
	data = binary.LittleEndian.AppendUint32(data, uint32(len(key)))
	data = binary.LittleEndian.AppendUint64(data, uint64(len(blob)))
	data = append(data, make([]byte, sha256.Size)...)
	data = append(data, key...)
	data = append(data, blob...)
	sum := digest(data)
	copy(data[hashOffset:], sum[:])
	return data, nil
}

// digest is the hash that belongs into an entry.
func digest(data []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	h.Write(data[len(magic):hashOffset])
	h.Write(data[headerBytes:])
	h.Sum(sum[:0])
	return sum
}

// decode returns the blob of an entry for the key, a part of data.
func decode(key string, data []byte) ([]byte, error) {
	if len(data) < headerBytes || string(data[:len(magic)]) != magic {
		return nil, errors.New("not an entry of this cache")
	}
	if v := binary.LittleEndian.Uint32(data[8:]); v != formatVersion {
		return nil, fmt.Errorf("an entry of format %d; this program reads %d", v, formatVersion)
	}
	keyBytes, blobBytes := binary.LittleEndian.Uint32(data[12:]), binary.LittleEndian.Uint64(data[16:])
	if keyBytes > maxKey || blobBytes > MaxBlob || headerBytes+uint64(keyBytes)+blobBytes != uint64(len(data)) {
		return nil, fmt.Errorf("an entry of %d bytes that says it holds %d of key and %d of blob", len(data), keyBytes, blobBytes)
	}
	if sum := digest(data); !bytes.Equal(sum[:], data[hashOffset:headerBytes]) {
		return nil, errors.New("an entry whose bytes are not those that were written")
	}
	blob := data[headerBytes+keyBytes:]
	if string(data[headerBytes:headerBytes+keyBytes]) != key {
		return nil, errors.New("an entry for another key")
	}
	return blob[:len(blob):len(blob)], nil
}
