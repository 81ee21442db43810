package main

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/gen/bind"
	"github.com/mlagen/mlagen/templates"
)

// complete settles where everything goes; given are the flags that were.
func (f *emitFlags) complete(given map[string]bool) error {
	if f.ptx == "" {
		return usagef("-o names no file; - is standard output")
	}
	if f.goFile != "" {
		if f.goFile == "-" || !strings.HasSuffix(f.goFile, ".go") {
			return usagef("-go %q cannot be used: name a file that ends in .go", f.goFile)
		}
		stem := strings.TrimSuffix(strings.TrimSuffix(f.goFile, ".go"), "_mlagen")
		for _, beside := range []struct {
			flag, extension string
			to              *string
		}{{"o", ".ptx", &f.ptx}, {"manifest", ".json", &f.manifest}} {
			if !given[beside.flag] {
				*beside.to = stem + beside.extension
			} else if *beside.to == "-" || filepath.Dir(*beside.to) != filepath.Dir(f.goFile) {
				return usagef("-%s %q cannot be used beside -go %s: Go embeds files of its own folder", beside.flag, *beside.to, f.goFile)
			}
		}
	} else if f.pkg != "" {
		return usagef("-pkg %q says what package Go code belongs to: name its file with -go", f.pkg)
	}
	if f.cFile != "" && !strings.HasSuffix(f.cFile, ".h") {
		return usagef("-c %q cannot be used: name a file that ends in .h", f.cFile)
	}
	if f.cFile != "" && f.goFile == "" && !given["o"] {
		f.ptx = "" // the header holds it
	}
	places := map[string]string{}
	for _, p := range []struct{ flag, place string }{{"o", f.ptx}, {"manifest", f.manifest}, {"go", f.goFile}, {"c", f.cFile}} {
		if p.place == "" {
			continue
		}
		if other, taken := places[p.place]; taken {
			return usagef("-%s and -%s are both %s", other, p.flag, p.place)
		}
		places[p.place] = p.flag
	}
	return nil
}

// outputs makes what is to be written of a kernel.
func (f *emitFlags) outputs(built *gen.Output) ([]output, error) {
	var outputs []output
	if f.ptx != "" {
		outputs = append(outputs, output{f.ptx, built.PTX})
	}
	if f.manifest != "" {
		text, err := built.Manifest.Text()
		if err != nil {
			return nil, err
		}
		outputs = append(outputs, output{f.manifest, text})
	}
	summary := ""
	for _, k := range templates.Kernels() {
		if k.Name == f.kernel {
			summary = k.Summary
		}
	}
	unusable := func(err error) error {
		var option *bind.OptionError
		if errors.As(err, &option) {
			return usageError{err}
		}
		return err
	}
	if f.goFile != "" {
		b := bind.Single{
			Package: cmp.Or(f.pkg, os.Getenv("GOPACKAGE"), "kernels"), Stem: bind.StemOf(f.goFile), Name: f.kernel, Summary: summary,
			PTXFile: filepath.Base(f.ptx), ManifestFile: filepath.Base(f.manifest), Manifest: built.Manifest,
		}
		code, err := b.Code()
		if err != nil {
			return nil, unusable(err)
		}
		outputs = append(outputs, output{f.goFile, code})
	}
	if f.cFile != "" {
		h := bind.Header{Stem: bind.HeaderStemOf(f.cFile), Name: f.kernel, Summary: summary, PTX: built.PTX, Manifest: built.Manifest}
		text, err := h.Text()
		if err != nil {
			return nil, unusable(err)
		}
		outputs = append(outputs, output{f.cFile, text})
	}
	return outputs, nil
}
