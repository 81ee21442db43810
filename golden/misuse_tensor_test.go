package golden_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/mlagen/mlagen/runtime"
)

// tensorMistakes are those of a tensor like t, which is dense.
func tensorMistakes(r *row, t *runtime.Tensor, add func(what string, change func(dev *paper, v reflect.Value), also ...string)) {
	edit := func(what string, change func(dev *paper, t *runtime.Tensor), also ...string) {
		add(what, func(dev *paper, v reflect.Value) { change(dev, v.Addr().Interface().(*runtime.Tensor)) }, also...)
	}
	if !r.absent {
		edit("not given", func(_ *paper, t *runtime.Tensor) { *t = runtime.Tensor{} })
	}
	for _, d := range []runtime.DType{runtime.BF16, runtime.FP16, runtime.F32, runtime.S32, runtime.S64, "e4m3", ""} {
		if d != t.DType {
			edit(fmt.Sprintf("dtype %q", string(d)), func(_ *paper, t *runtime.Tensor) { t.DType = d })
		}
	}
	addressMistakes(func(what string, change func(dev *paper, at runtime.Ptr, bytes int64) runtime.Ptr) {
		add(what, func(dev *paper, v reflect.Value) {
			at, bytes := placeOf(v)
			setPlace(v, change(dev, at, bytes))
		})
	}, t.DType.Bytes(), r.bad)
	// What is wrong by itself is so in memory without an end.
	shape := func(what string, endless bool, change func(s []int64) []int64) {
		edit(what, func(dev *paper, t *runtime.Tensor) {
			dev.maps = !endless
			t.Shape = change(slices.Clone(t.Shape))
		})
	}
	shape("no dimension", true, func([]int64) []int64 { return nil })
	shape("a dimension less", true, func(s []int64) []int64 { return s[:len(s)-1] })
	shape("a dimension more", true, func(s []int64) []int64 { return append([]int64{1}, s...) })
	for i := range t.Shape {
		fixed := !slices.Contains(r.free, i)
		shape(fmt.Sprintf("axis %d longer", i), fixed && r.blames == nil, func(s []int64) []int64 { s[i]++; return s })
		shape(fmt.Sprintf("axis %d negative", i), true, func(s []int64) []int64 { s[i] = -1; return s })
		shape(fmt.Sprintf("axis %d the least", i), true, func(s []int64) []int64 { s[i] = math.MinInt64; return s })
		shape(fmt.Sprintf("axis %d beyond reason", i), true, func(s []int64) []int64 { s[i] = 1 << 62; return s })
		if fixed {
			shape(fmt.Sprintf("axis %d shorter", i), true, func(s []int64) []int64 { s[i]--; return s })
			shape(fmt.Sprintf("axis %d empty", i), true, func(s []int64) []int64 { s[i] = 0; return s })
		}
		if most, ok := r.most[i]; ok {
			shape(fmt.Sprintf("axis %d of %d", i, most+1), true, func(s []int64) []int64 { s[i] = most + 1; return s })
		}
	}
	strideMistakes(r, t, func(what string, endless bool, strides []int64) {
		edit(what, func(dev *paper, t *runtime.Tensor) {
			dev.maps = !endless
			t.Strides = strides
		})
	})
}

// strideMistakes are wrong strides, by themselves or because they reach past the
// end of the tensor's memory.
func strideMistakes(r *row, t *runtime.Tensor, add func(what string, endless bool, strides []int64)) {
	dense := make([]int64, len(t.Shape))
	n := int64(1)
	for i := len(t.Shape) - 1; i >= 0; i-- {
		dense[i], n = n, n*t.Shape[i]
	}
	add("no strides", true, []int64{})
	add("a stride less", true, dense[1:])
	add("a stride more", true, append(slices.Clone(dense), 1))
	for i, size := range t.Shape {
		if size <= 1 {
			continue // no neighbour, no mistake
		}
		set := func(what string, endless bool, v int64) {
			s := slices.Clone(dense)
			s[i] = v
			add(fmt.Sprintf("stride %d %s", i, what), endless, s)
		}
		inner := i == len(t.Shape)-1
		set("negative", true, -dense[i])
		set("the least", true, math.MinInt64)
		set("odd", !r.loose && (inner || !r.table), dense[i]+1)
		set("twice", inner && !r.loose, 2*dense[i])
		set("beyond reason", true, 1<<62)
		set("the most", true, math.MaxInt64)
		if inner && !r.loose || !inner && !r.spread {
			set("0", true, 0)
		}
		if r.output && dense[i] > 8 {
			set("half", true, dense[i]/2)
		}
	}
}

// addressMistakes are wrong addresses for something of elements of so many
// bytes, and ones that are some bytes on. Rows of elements of two bytes are
// aligned to 16.
func addressMistakes(add func(what string, change func(dev *paper, at runtime.Ptr, bytes int64) runtime.Ptr), element int64, moved []int) {
	to := func(what string, p runtime.Ptr) {
		add(what, func(*paper, runtime.Ptr, int64) runtime.Ptr { return p })
	}
	to("null", 0)
	to("on the host", 0xc000010000)
	to("at the end of all addresses", 1<<64-256)
	to("in the upper half of all addresses", 1<<63)
	if moved = append(slices.Clone(moved), 1, int(element/2)); element == 2 {
		moved = append(moved, 8)
	}
	for _, by := range moved {
		add(fmt.Sprintf("%d bytes on", by), func(dev *paper, at runtime.Ptr, _ int64) runtime.Ptr {
			dev.maps = false
			return at + runtime.Ptr(by)
		})
	}
	add("past the end of its memory", func(dev *paper, at runtime.Ptr, bytes int64) runtime.Ptr {
		small, _ := dev.Alloc("small", bytes-1)
		return small
	})
	add("on another device", func(dev *paper, at runtime.Ptr, bytes int64) runtime.Ptr {
		other := runtime.Ptr(0x7e0000000000)
		dev.blocks = append(dev.blocks, runtime.Location{Where: "memory of GPU 1", Base: other, Size: bytes})
		return other
	})
}

// bufferMistakes are those of a buffer.
func bufferMistakes(r *row, add func(what string, change func(dev *paper, v reflect.Value), also ...string)) {
	edit := func(what string, change func(b *runtime.Buffer)) {
		add(what, func(dev *paper, v reflect.Value) {
			dev.maps = false
			change(v.Addr().Interface().(*runtime.Buffer))
		})
	}
	edit("not given", func(b *runtime.Buffer) { *b = runtime.Buffer{} })
	edit("a byte short", func(b *runtime.Buffer) { b.Bytes-- })
	edit("empty", func(b *runtime.Buffer) { b.Bytes = 0 })
	edit("negative", func(b *runtime.Buffer) { b.Bytes = math.MinInt64 })
	addressMistakes(func(what string, change func(dev *paper, at runtime.Ptr, bytes int64) runtime.Ptr) {
		add(what, func(dev *paper, v reflect.Value) {
			at, bytes := placeOf(v)
			setPlace(v, change(dev, at, bytes))
		})
	}, 16, r.bad)
}
