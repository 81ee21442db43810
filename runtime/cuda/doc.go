// Package cuda is the GPU driver of runtime, on gorgonia.org/cu. With the build
// tag `cuda` it drives an NVIDIA GPU of compute capability 9.0 through
// libcuda.so.1; without the tag Open only says so, and nothing of CUDA is
// imported (gorgonia.org/cu ends the process where it finds no GPU).
//
// Building needs the headers of CUDA 12.0 or later and a libcuda.so to link
// with, which need not be the driver's:
//
//	go run ./runtime/cuda/stub -headers HEADERS -o LIB/libcuda.so
//	CGO_CFLAGS="-I$PWD/runtime/cuda/include -IHEADERS" CGO_LDFLAGS="-LLIB" go build -tags cuda ./...
package cuda
