package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime/plan"
	"github.com/mlagen/mlagen/templates"
)

// card is what explain tells of a kernel.
type card struct {
	Kernel    string              `json:"kernel"`
	TuningKey string              `json:"tuning_key"`
	Manifest  *manifest.Manifest  `json:"manifest"`
	PTXBytes  int                 `json:"ptx_bytes"`
	Regions   []region            `json:"shared_map"`
	Tile      *templates.TileWork `json:"tile,omitempty"`
	Roofline  *roofline           `json:"roofline,omitempty"`
}

// region is a place in shared memory.
type region struct {
	Name   string `json:"name"`
	Offset int    `json:"offset"`
	Bytes  int    `json:"bytes"` // to the next region
	What   string `json:"what"`
}

// roofline holds a tile against a card.
type roofline struct {
	Card          string  `json:"card"`
	ClockGHz      float64 `json:"clock_ghz"`
	BytesPerCycle float64 `json:"bytes_per_cycle"` // of an SM's share of memory
	Ridge         float64 `json:"ridge"`           // FLOP per byte at which both take as long
	Intensity     float64 `json:"intensity"`       // FLOP that are no padding, per byte from memory
	MemoryCycles  float64 `json:"memory_cycles"`   // of a tile, its readers sharing what they read
	TensorBusy    float64 `json:"tensor_busy"`     // share of the time at best
	Bound         string  `json:"bound"`           // "memory" or "tensor"
}

// densePeak is an H200's dense bf16 rate in FLOP per second; with flopPerCycle
// of each SM it gives the clock that it is stated for.
const (
	densePeak    = 989e12
	flopPerCycle = 4096
)

// regionLine is the comment in which the generator tells of a region.
var regionLine = regexp.MustCompile(`(?m)^\s*// shared: (.+?) at (\d{1,9}), (.*)$`)

func newCard(name string, s templates.Spec, m *manifest.Manifest, text []byte) (*card, error) {
	sum := sha256.Sum256(text)
	if got := hex.EncodeToString(sum[:]); got != m.PTXSHA256 {
		return nil, fmt.Errorf("the manifest describes another text: PTX has SHA-256 %s, the manifest says %s", got, m.PTXSHA256)
	}
	c := &card{Kernel: name, TuningKey: m.TuningKey, Manifest: m, PTXBytes: len(text)}
	for _, found := range regionLine.FindAllSubmatch(text, -1) {
		at, err := strconv.Atoi(string(found[2]))
		if err != nil {
			return nil, err
		}
		c.Regions = append(c.Regions, region{Name: string(found[1]), Offset: at, What: string(found[3])})
	}
	for i := range c.Regions {
		end := m.Shared
		if i+1 < len(c.Regions) {
			end = c.Regions[i+1].Offset
		}
		c.Regions[i].Bytes = max(0, end-c.Regions[i].Offset)
	}
	if w, ok := templates.Work(name, s); ok {
		c.Tile = &w
		c.Roofline = newRoofline(&w)
	}
	return c, nil
}

// newRoofline is nil where what a tile brings is shared by others in ways that
// the spec does not tell.
func newRoofline(w *templates.TileWork) *roofline {
	r := &roofline{Card: plan.H200.Name}
	clock := densePeak / float64(plan.H200.SMs) / flopPerCycle
	r.ClockGHz = clock / 1e9
	r.BytesPerCycle = plan.H200.Stream / float64(plan.H200.SMs) / clock
	r.Ridge = flopPerCycle / r.BytesPerCycle
	if w.Readers == 0 {
		return r
	}
	bytes := float64(w.Bytes) / float64(w.Readers)
	r.Intensity = float64(w.FLOP) * w.Useful / bytes
	r.MemoryCycles = bytes / r.BytesPerCycle
	slower := max(r.MemoryCycles, float64(w.Cycles))
	r.TensorBusy = float64(w.Cycles) / slower
	r.Bound = "memory"
	if float64(w.Cycles) > r.MemoryCycles {
		r.Bound = "tensor"
	}
	return r
}

// print writes the card for people.
func (c *card) print(w io.Writer) error {
	m := c.Manifest
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("%s (%s)", c.Kernel, c.TuningKey)
	line("  PTX %s for %s, %s bytes, driver of CUDA %d.%d or later", m.PTXVersion, m.Target, grouped(c.PTXBytes), m.MinDriver/1000, m.MinDriver%1000/10)
	cluster := ""
	if m.Cluster > 1 {
		cluster = fmt.Sprintf(", in clusters of %d", m.Cluster)
	}
	line("  %d threads per CTA%s; %s of %s bytes of shared memory", m.Threads, cluster, grouped(m.Shared), grouped(hopper.SharedLimit))
	if l := m.Launch; l != nil {
		line("  launched %s: grid %s × %s × %s", onceOf(l, m.Kernel), l.Grid[0], l.Grid[1], l.Grid[2])
	}
	c.printRegisters(line)
	c.printShared(line)
	c.printTile(line)
	_, err := io.WriteString(w, b.String())
	return err
}

func onceOf(l *manifest.Launch, kernel string) string {
	for i, s := range l.Steps {
		if s.Kernel == kernel {
			return fmt.Sprintf("as %d of %d of %s, once per %s", i+1, len(l.Steps), l.Operation, s.Once)
		}
	}
	return "for " + l.Operation
}

func (c *card) printRegisters(line func(string, ...any)) {
	m := c.Manifest
	line("\nregisters per thread")
	if len(m.Roles) == 0 {
		line("  %-10s warps %2d to %-2d  at most %d", "all", 0, (m.Threads-1)/32, m.MaxNReg)
		return
	}
	for _, r := range m.Roles {
		registers := fmt.Sprintf("at most %d, as launched", m.MaxNReg)
		if r.Registers > 0 {
			registers = fmt.Sprintf("%d, set by the role", r.Registers)
		}
		line("  %-10s warps %2d to %-2d  %s", r.Name, r.FirstWarp, r.FirstWarp+r.Warps-1, registers)
	}
}

// mapWidth is the columns of the map of shared memory, which stand for all that
// a CTA may have.
const mapWidth = 48

func (c *card) printShared(line func(string, ...any)) {
	if len(c.Regions) == 0 {
		return
	}
	line("\nshared memory (a line is %s bytes wide)", grouped(hopper.SharedLimit))
	for _, r := range c.Regions {
		begin := min(r.Offset*mapWidth/hopper.SharedLimit, mapWidth-1)
		end := min((r.Offset+r.Bytes)*mapWidth/hopper.SharedLimit, mapWidth)
		bar := strings.Repeat("·", begin) + strings.Repeat("█", max(1, end-begin))
		bar += strings.Repeat("·", max(0, mapWidth-max(end, begin+1)))
		line("  %7d %s %s: %s", r.Offset, bar, r.Name, r.What)
	}
	line("  %7d end; %s bytes free", c.Manifest.Shared, grouped(hopper.SharedLimit-c.Manifest.Shared))
}

func (c *card) printTile(line func(string, ...any)) {
	w, r := c.Tile, c.Roofline
	if w == nil {
		return
	}
	line("\na tile: %s", w.Tile)
	for _, p := range w.Products {
		line("  %-8s %4d × wgmma m64n%dk16", p.Name, p.Count, p.N)
	}
	line("  tensor   %s cycles at least, %.2f MFLOP, of which %.0f %% are no padding", grouped(w.Cycles), float64(w.FLOP)/1e6, 100*w.Useful)
	line("  operands %s bytes: %.1f a tensor cycle", grouped(w.Bytes), float64(w.Bytes)/float64(w.Cycles))
	line("\nroofline, %s at %.2f GHz: %.1f bytes a cycle from memory for each SM, ridge at %.0f FLOP a byte", r.Card, r.ClockGHz, r.BytesPerCycle, r.Ridge)
	if r.Bound == "" {
		line("  How many CTAs find a tile's operands in the L2 depends on the lengths, so there is no bound by memory.")
		return
	}
	readers := ""
	if w.Readers > 1 {
		readers = fmt.Sprintf(", read once from memory for %d CTAs", w.Readers)
	}
	line("  %.0f FLOP a byte%s; a tile takes %s cycles to arrive: bound by %s, tensor cores busy %.0f %% at best",
		r.Intensity, readers, grouped(int(r.MemoryCycles+0.5)), map[string]string{"memory": "memory", "tensor": "the tensor cores"}[r.Bound], 100*r.TensorBusy)
	if r.Bound == "tensor" {
		line("  (a long run is slower: the clock falls at the power cap)")
	}
}
