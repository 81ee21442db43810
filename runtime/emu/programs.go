package emu

import (
	"crypto/sha256"
	"sync"

	"github.com/mlagen/mlagen/ptx/emu"
)

// Programs keeps decoded texts, for devices that are given the same ones, such
// as those of tests. Its methods may be called from any goroutine.
type Programs struct {
	mu     sync.Mutex
	byText map[[sha256.Size]byte]*emu.Program
}

// keptPrograms is how many texts are kept. A large kernel takes some megabytes.
const keptPrograms = 16

// decode returns the program of a text. Nil Programs keep nothing.
func (p *Programs) decode(text []byte) (*emu.Program, error) {
	if p == nil {
		return compile(text)
	}
	key := sha256.Sum256(text)
	p.mu.Lock()
	defer p.mu.Unlock()
	if kept := p.byText[key]; kept != nil {
		return kept, nil
	}
	made, err := compile(text)
	if err != nil {
		return nil, err
	}
	if p.byText == nil || len(p.byText) >= keptPrograms {
		p.byText = map[[sha256.Size]byte]*emu.Program{}
	}
	p.byText[key] = made
	return made, nil
}
