package bench

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/mlagen/mlagen/runtime"
)

// measured is what timing calls that follow one another gave, in microseconds
// per call.
type measured struct {
	median float64 // of the bursts
	spread float64 // (slowest−fastest)/median of the bursts

	// Only with Config.Sustained.
	burst, sustained float64
	power            *Power
}

// measure times so many calls that follow one another. The first replay warms
// up; what it leaves check then holds against a reference. After the last
// replay unchanged says whether the same was left: replays are
// bit-reproducible, a race is not.
func (b *Bench) measure(calls int, call func(i int) error, check, unchanged func() error) (m measured, err error) {
	w, err := b.prepare(func() error {
		for i := range calls {
			if err := call(i); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if _, err := b.bursts(w, 1); err != nil {
		return m, err
	}
	if err := check(); err != nil {
		return m, err
	}
	times, err := b.bursts(w, max(1, b.Replays))
	if err != nil {
		return m, err
	}
	n := float64(calls)
	m.median, m.spread = median(times)/n, spread(times)
	if b.Sustained > 0 {
		if m.burst, m.sustained, m.power, err = b.sustain(w, b.Sustained); err != nil {
			return m, err
		}
		m.burst, m.sustained = m.burst/n, m.sustained/n
	}
	return m, unchanged()
}

// watched reads what calls leave and makes of it measure's check, given a
// verification, and unchanged; name is for people.
func watched(name string, read func() ([]byte, error), verify func(left []byte) error) (check, unchanged func() error) {
	var first []byte
	check = func() (err error) {
		if first, err = read(); err != nil {
			return err
		}
		return verify(first)
	}
	unchanged = func() error {
		last, err := read()
		if err == nil && !bytes.Equal(first, last) {
			err = &WrongError{fmt.Sprintf("the last replay's %s differs from the first's", name)}
		}
		return err
	}
	return check, unchanged
}

// stepScheduleCalls are the calls of a schedule kernel in a replay of scheduleMicros.
const stepScheduleCalls = 64

// scheduleMicros times a schedule kernel that is launched beside another
// operation's, in microseconds per call.
func (b *Bench) scheduleMicros(schedule func(runtime.Stream) error) (us float64, err error) {
	w, err := b.prepare(func() error {
		for range stepScheduleCalls {
			if err := schedule(b.stream); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	times, err := b.bursts(w, 3)
	if err != nil {
		return 0, err
	}
	return median(times) / stepScheduleCalls, nil
}
