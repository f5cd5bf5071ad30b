package httplimit

import (
	"hash/maphash"
	"sync/atomic"
)

// memo remembers texts that requests need over and over: each key has one place, and whoever comes later takes it over. So it is bounded
// whatever keys clients make up, and reading it takes no lock. Several goroutines may use it.
type memo[K comparable, V any] struct {
	seed   maphash.Seed
	places [4096]atomic.Pointer[memoed[K, V]]
}

type memoed[K comparable, V any] struct {
	key   K
	value V
}

func newMemo[K comparable, V any]() *memo[K, V] { return &memo[K, V]{seed: maphash.MakeSeed()} }

func (m *memo[K, V]) place(key K) *atomic.Pointer[memoed[K, V]] {
	return &m.places[maphash.Comparable(m.seed, key)%uint64(len(m.places))]
}

func (m *memo[K, V]) get(key K) (value V, ok bool) {
	if found := m.place(key).Load(); found != nil && found.key == key {
		return found.value, true
	}
	return value, false
}

func (m *memo[K, V]) put(key K, value V) { m.place(key).Store(&memoed[K, V]{key, value}) }
