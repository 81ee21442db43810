package tune

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/cache"
)

// choicesFormat is the version of what the cache keeps.
const choicesFormat = "1"

// AtLoad returns what was tuned before for this device, driver, source, model and
// envelope with at least this budget, from a store of the caller's (see
// cache.Default; nil keeps nothing); where there is none it tunes, as OnDevice
// does, and keeps what it chose. kept reports whether the choices were there. A
// run that was interrupted is not kept. A store that cannot be written to is an
// error beside the choices.
func AtLoad(ctx context.Context, drv runtime.Driver, cfg Config, store *cache.Store) (c *Choices, kept bool, err error) {
	if cfg.Source == nil {
		return nil, false, errors.New("tune: source was nil, must make the kernels")
	}
	key, err := cacheKey(drv, cfg)
	if err != nil {
		return nil, false, fmt.Errorf("tune: %w", err)
	}
	if blob, err := store.Get(key); err == nil {
		// What cannot be used is replaced.
		if c, err := Read(bytes.NewReader(blob)); err == nil && c.Budget >= cfg.Budget.Seconds() {
			return c, true, nil
		}
	}
	if c, err = OnDevice(ctx, drv, cfg); err != nil || c.Interrupted || store == nil {
		return c, false, err
	}
	text, err := c.Text()
	if err == nil {
		err = store.Put(key, text)
	}
	if err != nil {
		err = fmt.Errorf("tune: choices are not kept: %w", err)
	}
	return c, false, err
}

// cacheKey names everything that choices depend on, but the budget.
func cacheKey(drv runtime.Driver, cfg Config) (cache.Key, error) {
	loads, err := cfg.Envelope.Buckets()
	if err != nil {
		return cache.Key{}, err
	}
	// The generator is known by what it makes.
	s := cfg.Model.shape(loads[0].SQ, Choice{})
	v, err := cfg.Source.Decode(s)
	if err != nil {
		return cache.Key{}, err
	}
	envelope, err := json.Marshal(loads)
	if err != nil {
		return cache.Key{}, err
	}
	sum, card := sha256.Sum256(envelope), CardOf(drv)
	key := cache.Key{Kind: "choices", Fields: []cache.Field{
		{Name: "format", Value: choicesFormat},
		{Name: "card", Value: fmt.Sprintf("%s, %d SMs", card.Name, card.SMs)},
		{Name: "driver", Value: card.Driver},
		{Name: "kernels", Value: identifyVariants(s, v).SHA256},
		{Name: "model", Value: fmt.Sprintf("%+v", cfg.Model)},
		{Name: "envelope", Value: hex.EncodeToString(sum[:])},
		{Name: "invariant", Value: fmt.Sprint(cfg.Invariant)},
	}}
	return key, nil
}
