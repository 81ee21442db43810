#!/usr/bin/env bash
# Writes the kernels that check.py loads into a folder: OPERATION/KERNEL.ptx with
# its manifest. This needs Go; what runs them does not.
#
#	examples/python/emit.sh DIR
set -euo pipefail
if [[ $# -ne 1 ]]; then
	echo "usage: emit.sh DIR" >&2
	exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
mkdir -p bin
go build -o bin/mlagen ./cmd/mlagen

# emit OPERATION FLAGS... -- KERNEL...
emit() {
	local name=$1 flags=()
	shift
	while [[ $1 != -- ]]; do
		flags+=("$1")
		shift
	done
	shift
	mkdir -p "$out/$name"
	for kernel in "$@"; do
		bin/mlagen emit -kernel "$kernel" "${flags[@]}" -o "$out/$name/$kernel.ptx" -manifest "$out/$name/$kernel.json"
	done
}

for heads in 16 128; do
	for tokens in 1 2; do
		emit "decode-h$heads-sq$tokens" -heads "$heads" -sq "$tokens" -- decode-schedule absorb-decode decode-combine
	done
	emit "prefill-h$heads" -heads "$heads" -- expand-schedule expand-prefill
done
emit decode-h16-fp16 -heads 16 -dtype fp16 -- decode-schedule absorb-decode decode-combine
