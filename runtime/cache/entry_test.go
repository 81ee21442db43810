package cache

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestEntry(t *testing.T) {
	for _, blob := range [][]byte{nil, {7}, bytes.Repeat([]byte("blob"), 10_000)} {
		data, err := encode("key", blob)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode("key", data)
		if err != nil || !bytes.Equal(got, blob) {
			t.Errorf("%d bytes came back as %d: %v", len(blob), len(got), err)
		}
	}
	if _, err := encode("key", make([]byte, MaxBlob+1)); err == nil || !strings.Contains(err.Error(), "must be at most 67108864") {
		t.Errorf("got %v", err)
	}
}

// TestEveryBitOfAnEntryCounts: an entry with any bit altered, cut anywhere or
// with something behind it, is none.
func TestEveryBitOfAnEntryCounts(t *testing.T) {
	data, err := encode("a key", []byte("a blob"))
	if err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(data) {
		altered := slices.Clone(data)
		altered[bit/8] ^= 1 << (bit % 8)
		if _, err := decode("a key", altered); err == nil {
			t.Errorf("bit %d may be either", bit)
		}
	}
	for n := range data {
		if _, err := decode("a key", data[:n]); err == nil {
			t.Errorf("%d of %d bytes are an entry", n, len(data))
		}
	}
	if _, err := decode("a key", append(slices.Clone(data), 0)); err == nil {
		t.Error("an entry with a byte behind it is one")
	}
	if _, err := decode("b key", data); err == nil || err.Error() != "an entry for another key" {
		t.Errorf("another key: %v", err)
	}
}

func TestKeysDiffer(t *testing.T) {
	seen := map[string]int{}
	for i, k := range []Key{
		{Kind: "a"}, {Kind: "b"},
		{"a", []Field{{"x", ""}}}, {"a", []Field{{"", "x"}}}, {"a", []Field{{"x", ""}, {"x", ""}}},
		{"a", []Field{{"x", "y=z"}}}, {"a", []Field{{"x=y", "z"}}}, {"a", []Field{{"x", "y"}, {"z", ""}}}, {"a", []Field{{"x", "y\"\n\"z\"=\""}}},
		{"a", []Field{{"y", "1"}, {"x", "2"}}}, {"a", []Field{{"x", "2"}, {"y", "1"}}},
	} {
		text, err := k.text()
		if err != nil {
			t.Fatal(err)
		}
		if j, ok := seen[text]; ok {
			t.Errorf("keys %d and %d are both %q", i, j, text)
		}
		seen[text] = i
	}
	for _, k := range []Key{{Kind: ""}, {Kind: "../x"}, {Kind: "A"}, {Kind: "1a"}, {"a", []Field{{"x", strings.Repeat("y", maxKey)}}}} {
		if _, err := k.text(); err == nil {
			t.Errorf("key %.40v is one", k)
		}
	}
}

// FuzzDecode: nothing panics, and nothing is an entry but what encode makes.
func FuzzDecode(f *testing.F) {
	for _, blob := range [][]byte{nil, []byte("blob"), bytes.Repeat([]byte{0xff}, 300)} {
		data, err := encode("image\n\"x\"=\"y\"", blob)
		if err != nil {
			f.Fatal(err)
		}
		f.Add("image\n\"x\"=\"y\"", data)
		f.Add("image\n\"x\"=\"y\"", data[:len(data)-1])
	}
	f.Add("", []byte(magic))
	f.Fuzz(func(t *testing.T, key string, data []byte) {
		blob, err := decode(key, data)
		if err != nil {
			return
		}
		again, err := encode(key, blob)
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("%q is an entry, but encode writes %q, %v", data, again, err)
		}
	})
}
