package main

// examples are command lines that -h shows, by command. A test parses them all.
var examples = map[string][]string{
	"mlagen": {
		"mlagen list",
		"mlagen run -heads 16 -kv 1000,300",
		"mlagen emit -kernel absorb-decode -heads 128 -o decode.ptx -manifest decode.json",
	},
	"list": {"mlagen list", "mlagen list -json"},
	"emit": {
		"mlagen emit -kernel absorb-decode -heads 16",
		"mlagen emit -kernel expand-prefill -heads 16 -dtype fp16 -o prefill.ptx -manifest prefill.json",
		"mlagen emit -kernel absorb-decode -heads 16 -go absorb_decode_h16.go -pkg kernels",
		"mlagen emit -kernel absorb-decode -heads 16 -go absorb_decode_h16.go -pkg kernels -check",
		"mlagen emit -kernel absorb-decode -heads 16 -c absorb_decode.h",
	},
	"bind": {
		"mlagen bind -op decode -heads 16",
		"mlagen bind -op prefill -heads 128 -pkg kernels -out-dir internal/kernels",
	},
	"explain": {
		"mlagen explain -kernel absorb-decode -heads 128",
		"mlagen explain golden/ptx/expand-prefill.ptx",
	},
	"verify": {"mlagen verify golden/ptx/absorb-decode-h16.ptx", "mlagen emit -kernel stream | mlagen verify -"},
	"run": {
		"mlagen run",
		"mlagen run -heads 128 -kv 1000,300 -seeds 20",
		"mlagen run -device cuda -heads 16 -sq 2",
	},
	"check": {
		"mlagen check golden/cases/testdata/decode-first.json",
		"mlagen check -device cuda golden/cases/testdata/decode-first.json",
	},
	"bench": {
		"mlagen bench -op decode -quick -heads 16,128",
		"mlagen bench -op decode -batch 1,128 -kv 4096 -csv decode.csv",
		"mlagen bench -op prefill -heads 128 -kv 1024,8192",
	},
	"tune": {
		"mlagen tune -heads 16 -batch 1:256 -kv 1024:32768 -o choices.json",
		"mlagen tune -load choices.json",
	},
	"plan":       {"mlagen plan -new 64 -prefix 32768", "mlagen plan -new 512 -prefix 8192 -heads 16 -json"},
	"cache":      {"mlagen cache", "mlagen cache -clear"},
	"completion": {"mlagen completion bash > /etc/bash_completion.d/mlagen", "mlagen completion fish > ~/.config/fish/completions/mlagen.fish"},
	"version":    {"mlagen version"},
}
