package bind

import (
	"errors"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// single is a binding of a kernel with an argument of every kind.
func single() *Single {
	return &Single{
		Package: "kernels", Stem: "some_kernel_h16", Name: "some-kernel", Summary: `says "hello" to ` + strings.Repeat("very ", 20) + "many heads",
		PTXFile: "some_kernel_h16.ptx", ManifestFile: "some_kernel_h16.json",
		Manifest: &manifest.Manifest{Kernel: "some_kernel", Launch: &manifest.Launch{
			Operation: "o", Steps: []manifest.Step{{Kernel: "first", Once: manifest.OncePerStep}, {Kernel: "some_kernel", Once: manifest.OncePerLayer}},
			Constants: []manifest.Constant{{Name: "heads", Value: 16}},
			Arguments: []manifest.Argument{
				{Name: "type", Kind: manifest.IntegerArgument, Doc: "a keyword", Min: "0", Max: "1024 / heads"},
				{Name: "bound", Kind: manifest.IntegerArgument, Doc: "of the next", Min: "0", Max: "100"},
				{Name: "bounded", Kind: manifest.IntegerArgument, Doc: "no size follows from it", Min: "0", Max: "bound"},
				{Name: "kv_len", Kind: manifest.TensorArgument, Doc: "lengths", DType: "s32", Align: 4, Dense: true, Shape: []manifest.Dimension{{Name: "type", Size: "type"}}},
				{Name: "out", Kind: manifest.TensorArgument, Doc: "the result", DType: "bf16", Align: 16, Output: true,
					Shape: []manifest.Dimension{{Name: "any"}, {Name: "head", Size: "heads"}, {Name: "row", Size: "type + heads"}}},
				{Name: "schedule", Kind: manifest.BufferArgument, Doc: "the work", Align: 16, Bytes: "type * 16"},
				{Name: "scale", Kind: manifest.RealArgument, Doc: "of the logits"},
			},
		}},
	}
}

func TestSingle(t *testing.T) {
	code, err := single().Code()
	if err != nil {
		t.Fatal(err)
	}
	isGolden(t, "single.golden", code)
	for range 10 {
		if again, err := single().Code(); err != nil || string(again) != string(code) {
			t.Fatalf("made again it is another: %v", err)
		}
	}
}

func TestSingleRefuses(t *testing.T) {
	for want, change := range map[string]func(*Single){
		"-go \"Some.go\" cannot be used":   func(b *Single) { b.Stem = "Some" },
		"end in _linux are for":            func(b *Single) { b.Stem = "some_linux" },
		`-pkg "a b" cannot be used`:        func(b *Single) { b.Package = "a b" },
		"its manifest has no launch rules": func(b *Single) { b.Manifest.Launch = nil },
	} {
		b := single()
		change(b)
		_, err := b.Code()
		var option *OptionError
		if !errors.As(err, &option) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestStemOf(t *testing.T) {
	for file, want := range map[string]string{"a/b_h16.go": "b_h16", "b_mlagen.go": "b", "x.go": "x"} {
		if got := StemOf(file); got != want {
			t.Errorf("%s gives %s, want %s", file, got, want)
		}
	}
}
