# Everything here is an ordinary go command or a script of .ci/; the targets
# only save typing. Nothing but Go is needed for build and test.

GO ?= go

.PHONY: all tools build test lint generate cuda bench clean

all: build test

# ptxas, disassemblers and CUDA headers, pinned, into .tools/ (needs Python).
tools:
	.ci/tools

build:
	$(GO) build ./...
	$(GO) build -o bin/ ./cmd/...

test:
	$(GO) test ./...

lint:
	.ci/lint

generate:
	$(GO) generate ./...

# The GPU build, compiled and linked with the headers of CUDA 12 and 13. Needs
# gcc, no toolkit and no GPU; leaves bin/mlagen-cuda for a machine with one.
cuda: tools
	.ci/cuda

# Go's benchmarks. GPU kernels are timed by `bin/mlagen-cuda bench` where a GPU is.
bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

clean:
	rm -rf bin .stage
	$(GO) clean -testcache
