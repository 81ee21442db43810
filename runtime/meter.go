package runtime

// Metered is implemented by drivers of devices that measure themselves.
type Metered interface {
	// Meter opens the device's meter. The error says why there is none, such as
	// a library that is not installed.
	Meter() (Meter, error)
}

// Meter reads a device's instruments and changes nothing. Unlike a Driver's,
// its methods may be called while others use the device.
type Meter interface {
	// Read takes some milliseconds. What the device does not tell is NaN.
	Read() (Reading, error)
	Close() error
}

// Reading is what a device's instruments show.
type Reading struct {
	Watts    float64 // drawn now, or over as short a time as the device can tell
	ClockMHz float64 // of the multiprocessors
	Joules   float64 // drawn since some moment in the past; counts in steps of some 100 ms
}
