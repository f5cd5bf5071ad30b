package account_test

import (
	"strconv"
	"time"

	"github.com/headgate/headgate/store"
)

// semaphoreRows are permits of a semaphore that others hold, too.
func semaphoreRows() []row {
	const others = 64
	ask := store.Acquire{Name: "gpu", Permits: 1, Max: 1000, Lease: time.Minute}
	acquire := func(s *site, token int) {
		ask.Token = strconv.Itoa(token)
		p, err := s.store.Acquire(s.Context(), ask)
		s.check(err)
		if !p.Granted() {
			s.Fatalf("%+v", p)
		}
	}
	crowd := func(s *site) {
		for token := range others {
			acquire(s, -1-token)
		}
	}
	return []row{
		{"Acquire of a semaphore", "semaphore: ask, grant", 1, func(s *site) func() func() {
			crowd(s)
			n := 0
			return func() func() {
				n++
				if n > 500 { // Far from the limit.
					n = 1
				}
				s.check(s.store.Release(s.Context(), ask.Name, strconv.Itoa(n)))
				return func() { acquire(s, n) }
			}
		}},
		{"Acquire of a tenant's, by its record", "semaphore: ask, grant", 1, func(s *site) func() func() {
			version, err := s.store.PutRecord(s.Context(), store.RecordEdit{Tenant: "acme", Text: []byte(`{"semaphores":{"gpu":{"max":1000}}}`), By: store.Intervention{Own: true}})
			s.check(err)
			own := store.Acquire{Name: "acme:gpu", Permits: 1, Max: 1000, Record: version, Lease: time.Minute}
			n := 0
			acquireOwn := func(token int) {
				own.Token = strconv.Itoa(token)
				_, err := s.store.Acquire(s.Context(), own)
				s.check(err)
			}
			for token := range others {
				acquireOwn(-1 - token)
			}
			return func() func() {
				n++
				if n > 500 { // Far from the limit.
					n = 1
				}
				s.check(s.store.Release(s.Context(), own.Name, strconv.Itoa(n)))
				return func() { acquireOwn(n) }
			}
		}},
		{"Release", "semaphore: release", 1, func(s *site) func() func() {
			crowd(s)
			return func() func() {
				acquire(s, 1)
				return func() { s.check(s.store.Release(s.Context(), ask.Name, "1")) }
			}
		}},
		{"Extend", "semaphore: extend", 1, func(s *site) func() func() {
			crowd(s)
			return func() func() {
				acquire(s, 1)
				return func() {
					_, err := s.store.Extend(s.Context(), ask.Name, "1", time.Minute)
					s.check(err)
				}
			}
		}},
		{"Acquire where nobody holds any", "semaphore: fits, grant, keep", 1, func(s *site) func() func() {
			return func() func() {
				s.check(s.store.Release(s.Context(), ask.Name, "1"))
				return func() { acquire(s, 1) }
			}
		}},
		{"Release of the last", "semaphore: release, gone", 1, func(s *site) func() func() {
			return func() func() {
				acquire(s, 1)
				return func() { s.check(s.store.Release(s.Context(), ask.Name, "1")) }
			}
		}},
	}
}
