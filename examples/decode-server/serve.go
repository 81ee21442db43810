package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mlagen/mlagen/runtime"
)

// service is what serving some requests has given and taken.
type service struct {
	tokens map[int][]digest // by request

	steps, replays, generated, promptTokens int
	most                                    int   // requests at a time
	returned                                int   // pages
	buckets                                 []int // capacities that were used
	elapsed                                 time.Duration
	deviceMicroseconds                      float64
}

// live is a request that is being served.
type live struct {
	*request
	pages  []int32
	length int // tokens in the cache
	last   digest
	tokens []digest
}

// watcher sees the result of every step of a request, before its token is made
// of it.
type watcher func(l *live, out, lse []byte)

// serve runs the requests, which come in the order of their arrival, until each
// has its tokens.
func (e *engine) serve(requests []request) (*service, error) { return e.serveWatched(requests, nil) }

func (e *engine) serveWatched(requests []request, watch watcher) (*service, error) {
	start, given := time.Now(), e.pool.returned
	s := &service{tokens: map[int][]digest{}}
	var batch []*live
	for step := 0; len(requests)+len(batch) > 0; step++ {
		for len(requests) > 0 && requests[0].arrival <= step && len(batch) < e.capacity && e.pool.promise(requests[0].pages()) {
			l, err := e.join(&requests[0])
			if err != nil {
				return nil, fmt.Errorf("request %d: %w", requests[0].id, err)
			}
			s.promptTokens += l.prompt
			batch, requests = append(batch, l), requests[1:]
		}
		if len(batch) == 0 {
			step = requests[0].arrival - 1 // nobody is there until then
			continue
		}
		s.most = max(s.most, len(batch))
		if err := e.step(batch, s, watch); err != nil {
			return nil, fmt.Errorf("step %d: %w", step, err)
		}
		// The last of the batch takes the place of one that leaves.
		for i := 0; i < len(batch); {
			l := batch[i]
			if len(l.tokens) < l.generate {
				i++
				continue
			}
			s.tokens[l.id] = l.tokens
			if err := e.leave(l); err != nil {
				return nil, fmt.Errorf("request %d: %w", l.id, err)
			}
			batch[i] = batch[len(batch)-1]
			batch = batch[:len(batch)-1]
		}
	}
	if n := len(e.pool.free); n != e.config.pages {
		return nil, fmt.Errorf("%d of %d pages came back", n, e.config.pages)
	}
	s.elapsed, s.returned = time.Since(start), e.pool.returned-given
	return s, nil
}

// join puts a request's prompt into the cache. It stands for a prefill.
func (e *engine) join(r *request) (*live, error) {
	l := &live{request: r, last: e.model.begin(r.id)}
	rows, slots := make([]byte, r.prompt*rowBytes), make([]byte, 0, r.prompt*8)
	for position := range r.prompt {
		e.extend(l)
		e.model.promptRow(at(rows, position, rowBytes), r.id, position)
		slots = binary.LittleEndian.AppendUint64(slots, slot(l.pages, position))
	}
	if err := e.driver.Upload(e.prompt, rows); err != nil {
		return nil, err
	}
	if err := e.driver.Upload(e.promptSlots, slots); err != nil {
		return nil, err
	}
	return l, e.store(e.prompt, e.promptSlots, r.prompt)
}

// extend makes room for another token.
func (e *engine) extend(l *live) {
	if l.length%page == 0 {
		l.pages = append(l.pages, e.pool.take())
	}
	l.length++
}

// step gives every request of the batch its next token.
func (e *engine) step(batch []*live, s *service, watch watcher) error {
	b := e.bucket(len(batch))
	if !slices.Contains(s.buckets, b.capacity) {
		s.buckets = append(s.buckets, b.capacity)
		slices.Sort(s.buckets)
	}
	b.clear()
	for i, l := range batch {
		e.extend(l)
		query, record := b.set(i, l.length, l.pages)
		e.model.input(query, record, &l.last)
	}
	microseconds, err := e.replay(b)
	if err != nil {
		return err
	}
	s.steps, s.replays, s.generated = s.steps+1, s.replays+1, s.generated+len(batch)
	s.deviceMicroseconds += microseconds

	wrong := make([]error, b.capacity)
	var wg sync.WaitGroup
	for i := range b.capacity {
		out, lse := b.result(i)
		if i >= len(batch) {
			if !isEmpty(out, lse) {
				wrong[i] = fmt.Errorf("place %d has no request, and a result other than zeros and −∞", i)
			}
			continue
		}
		l := batch[i]
		if watch != nil {
			watch(l, out, lse)
		}
		wg.Go(func() {
			if !isFinite(out, lse) {
				wrong[i] = fmt.Errorf("request %d, token %d: the result has NaN or infinite elements", l.id, len(l.tokens))
			}
			l.last = e.model.next(&l.last, out, lse)
			l.tokens = append(l.tokens, l.last)
		})
	}
	wg.Wait()
	return errors.Join(wrong...)
}

// leave takes a request's pages back and poisons them.
func (e *engine) leave(l *live) error {
	for _, id := range l.pages {
		if err := e.stream.FillAsync(e.cache+runtime.Ptr(id)*pageBytes, poison, pageBytes); err != nil {
			return err
		}
	}
	e.pool.put(l.pages)
	return nil
}
