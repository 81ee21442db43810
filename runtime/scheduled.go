package runtime

// Capturer is implemented by streams that know whether they are recording a
// graph. Where a stream does, Run holds its arguments against those with which
// Schedule filled the buffer.
type Capturer interface{ Capturing() bool }

// schedules remembers for what the schedules in some buffers were made last, so
// that a run that was meant for another is told so. It knows nothing of buffers
// that others filled or copied, nor of ones that a graph may fill again at any
// time: about these it says nothing.
type schedules[T any] struct {
	made [16]struct {
		at   Ptr
		what T
		open bool // by a graph, for what that was captured with
	}
	next int
}

// fill records that a launch on s filled the buffer at at for what.
func (m *schedules[T]) fill(s Stream, at Ptr, what T) {
	open := mayCapture(s)
	slot := -1
	for i := range m.made {
		if m.made[i].at == at {
			slot = i
		}
	}
	for range m.made {
		if slot >= 0 {
			break
		}
		if !m.made[m.next].open { // one that is would pass for known when it is filled the next time
			slot = m.next
		}
		m.next = (m.next + 1) % len(m.made)
	}
	if slot < 0 {
		return
	}
	e := &m.made[slot]
	e.open = open || e.at == at && e.open
	e.at, e.what = at, what
}

// of returns for what the buffer at at was filled last, when a run on s is sure
// to find it so.
func (m *schedules[T]) of(s Stream, at Ptr) (what T, known bool) {
	if mayCapture(s) {
		return what, false
	}
	for i := range m.made {
		if e := &m.made[i]; e.at == at && at != 0 {
			return e.what, !e.open
		}
	}
	return what, false
}

// mayCapture reports that what s is given may run later, and again.
func mayCapture(s Stream) bool {
	c, ok := s.(Capturer)
	return !ok || c.Capturing()
}
