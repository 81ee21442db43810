package check

import "fmt"

// schedules calls run under every schedule of the options, telling it how many
// were before, and returns the first error. With several schedules the error
// names the seed.
func (r *Runner) schedules(run func(i int) error) error {
	seeder, ok := r.Driver.(Seeder)
	if !ok && r.Seeds > 1 {
		return fmt.Errorf("%s has one schedule, its own, and %d are wanted", r.Driver.Name(), r.Seeds)
	}
	for i := range max(r.Seeds, 1) {
		seed := r.Seed + uint64(i)
		if ok {
			seeder.SetSeed(seed)
		}
		err := run(i)
		if r.Inspect != nil {
			if found := r.Inspect(seed); err == nil {
				err = found
			}
		}
		switch {
		case err != nil && r.Seeds > 1:
			return fmt.Errorf("seed %d: %w", seed, err)
		case err != nil:
			return err
		}
	}
	return nil
}
