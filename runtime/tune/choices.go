package tune

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
)

// Schema is the version of the file's layout.
const Schema = 1

// Choices is what was chosen for a model on a card, by load. Its JSON is a file
// that an engine can ship.
type Choices struct {
	Schema int    `json:"schema"`
	Tool   string `json:"tool"` // generator of the kernels that were timed
	Card   Card   `json:"card"`
	Model  Model  `json:"model"`
	// Invariant choices have the same row block and forced pieces for every load
	// with so many query tokens, so that a request's bits depend on no other.
	Invariant bool      `json:"invariant,omitempty"`
	Kernels   []Kernels `json:"kernels,omitempty"` // that the choices run, as they were timed
	Buckets   []Bucket  `json:"buckets"`           // in the order of their loads

	Budget      float64 `json:"budget_s"` // seconds
	Spent       float64 `json:"spent_s"`
	Interrupted bool    `json:"interrupted,omitempty"` // what was not reached has its default
}

// Bucket is a load with its choice. Times are medians in microseconds per call.
type Bucket struct {
	Load
	Default   Choice  `json:"default"` // what the source takes without measuring
	Choice    Choice  `json:"choice"`
	DefaultUS float64 `json:"default_us,omitempty"`
	ChosenUS  float64 `json:"chosen_us,omitempty"`
	// Gain is the default's time ÷ the choice's: the median of the ratios of
	// neighbouring bursts, taken after the choice was made. 1 where the default
	// stayed.
	Gain   float64 `json:"gain"`
	Rounds int     `json:"rounds,omitempty"` // ratios that gain is of
	Tried  int     `json:"tried,omitempty"`  // choices that were timed beside the default
}

// Gain is the geometric mean over the buckets.
func (c *Choices) Gain() float64 {
	sum := 0.0
	for _, b := range c.Buckets {
		sum += math.Log(b.Gain)
	}
	return math.Exp(sum / float64(max(1, len(c.Buckets))))
}

// StaleError says why choices do not hold here: they were made for something
// else. An engine goes on with its source's defaults.
type StaleError struct{ Reason string }

func (e *StaleError) Error() string { return "tuned choices are not used: " + e.Reason }

// Fits reports, as a StaleError, what the choices were made for that is not here.
// tool is the generator's name and version as manifests have it.
func (c *Choices) Fits(card Card, model Model, tool string) error {
	stale := func(format string, args ...any) error { return &StaleError{fmt.Sprintf(format, args...)} }
	switch {
	case c.Card.Name != card.Name || c.Card.SMs != card.SMs:
		return stale("they were measured on %s with %d SMs; this is %s with %d", c.Card.Name, c.Card.SMs, card.Name, card.SMs)
	case c.Card.Driver != card.Driver:
		return stale("they were measured with driver %q; this is %q", c.Card.Driver, card.Driver)
	case c.Tool != tool:
		return stale("the kernels that were measured are of %q; these are of %q", c.Tool, tool)
	case c.Model != model:
		return stale("they are for the model %+v; this is %+v", c.Model, model)
	}
	return nil
}

// maxFile bounds what is read of a file.
const maxFile = 4 << 20

// Read reads choices and makes sure of every field: the file may come from
// anywhere.
func Read(r io.Reader) (*Choices, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("tuned choices: %w", err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("tuned choices: more than %d bytes", maxFile)
	}
	var c Choices
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return nil, fmt.Errorf("tuned choices: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("tuned choices: something follows the object")
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("tuned choices: %w", err)
	}
	return &c, nil
}

// ReadFile reads the choices in a file.
func ReadFile(name string) (*Choices, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("tuned choices: %w", err)
	}
	defer f.Close()
	c, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// Text returns the file's contents.
func (c *Choices) Text() ([]byte, error) {
	text, err := json.MarshalIndent(c, "", "  ")
	return append(text, '\n'), err
}

// WriteFile writes the choices: beside their place first, then renamed into it.
func (c *Choices) WriteFile(name string) (err error) {
	text, err := c.Text()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if gone := os.Remove(f.Name()); err == nil && !errors.Is(gone, fs.ErrNotExist) {
			err = gone
		}
	}()
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

const mostText = 256 // bytes of a name in a file

// check names the first field that cannot be.
func (c *Choices) check() error {
	if c.Schema != Schema {
		return fmt.Errorf("schema was %d; this reads %d", c.Schema, Schema)
	}
	m := c.Model
	for _, f := range []struct {
		name      string
		was, most int
	}{
		{"model.heads", m.Heads, mostSQ}, {"model.latent", m.Latent, mostSQ}, {"model.rope", m.Rope, mostSQ}, {"model.page", m.Page, mostSQ},
		{"card.sms", c.Card.SMs, 1 << 16},
	} {
		if f.was < 1 || f.was > f.most {
			return fmt.Errorf("%s was %d, must be 1 to %d", f.name, f.was, f.most)
		}
	}
	if m.DType.Bytes() == 0 {
		return fmt.Errorf("model.dtype was %q, must be an element type", string(m.DType))
	}
	for _, f := range []struct{ name, was string }{{"tool", c.Tool}, {"card.name", c.Card.Name}, {"card.driver", c.Card.Driver}} {
		if len(f.was) > mostText {
			return fmt.Errorf("%s had %d bytes, must be at most %d", f.name, len(f.was), mostText)
		}
	}
	for _, f := range []struct {
		name string
		was  float64
	}{{"budget_s", c.Budget}, {"spent_s", c.Spent}} {
		if !(f.was >= 0) {
			return fmt.Errorf("%s was %v, must be at least 0", f.name, f.was)
		}
	}
	if len(c.Buckets) == 0 || len(c.Buckets) > mostLoads || len(c.Kernels) > mostLoads {
		return fmt.Errorf("buckets and kernels were %d and %d, must be 1 and 0 to %d", len(c.Buckets), len(c.Kernels), mostLoads)
	}
	for i, k := range c.Kernels {
		if k.SQ < 1 || k.SQ > mostSQ || k.BlockH < 1 || k.BlockH > mostBlockH ||
			!slices.Contains(evictions, k.Evict) || k.PieceCost < 0 || k.PieceCost > mostPieceCost || k.Cluster < 0 || k.Cluster > mostCluster || k.Teams < 0 || k.Teams > mostTeams || len(k.SHA256) != 2*sha256.Size {
			return fmt.Errorf("kernels[%d] was %+v: not those of a decode", i, k)
		}
	}
	for i := range c.Buckets {
		if err := c.checkBucket(i); err != nil {
			return fmt.Errorf("buckets[%d].%w", i, err)
		}
	}
	return nil
}

func (c *Choices) checkBucket(i int) error {
	b := &c.Buckets[i]
	if err := b.Load.check(); err != nil {
		return err
	}
	if rows := b.SQ * c.Model.Heads; rows > mostSQ {
		return fmt.Errorf("s_q was %d: %d query rows per request, must be at most %d", b.SQ, rows, mostSQ)
	}
	if i > 0 && compareLoads(c.Buckets[i-1].Load, b.Load) >= 0 {
		return fmt.Errorf("s_q: %v follows %v, must be in order and once", b.Load, c.Buckets[i-1].Load)
	}
	for _, f := range []struct {
		name string
		c    Choice
	}{{"default", b.Default}, {"choice", b.Choice}} {
		if err := f.c.check(); err != nil {
			return fmt.Errorf("%s.%w", f.name, err)
		}
	}
	// Otherwise a small file could ask for any amount of workspace.
	if n := b.Choice.Splits; n > 0 && (n > b.Tokens || b.Batch*n > mostBatch) {
		return fmt.Errorf("choice.splits was %d, must be at most tokens and %d ÷ batch", n, mostBatch)
	}
	if !(b.DefaultUS >= 0) || !(b.ChosenUS >= 0) || b.Rounds < 0 || b.Tried < 0 {
		return fmt.Errorf("default_us was %v, chosen_us %v, rounds %d, tried %d: none may be negative", b.DefaultUS, b.ChosenUS, b.Rounds, b.Tried)
	}
	if !(b.Gain >= 1) || b.Gain > 1e6 {
		return fmt.Errorf("gain was %v, must be at least 1: what is not faster is not chosen", b.Gain)
	}
	if c.Invariant && i > 0 && c.Buckets[i-1].SQ == b.SQ {
		if was := c.Buckets[i-1].Choice; was.BlockH != b.Choice.BlockH || was.Splits != b.Choice.Splits || was.Teams != b.Choice.Teams {
			return fmt.Errorf("choice was %v after %v: invariant choices have one row block, teams and number of pieces for each s_q", b.Choice, was)
		}
	}
	if c.Invariant && b.Choice.Splits == 0 {
		return errors.New("choice.splits was 0, must be at least 1 in invariant choices")
	}
	return nil
}
