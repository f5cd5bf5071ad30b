package graves

import (
	"cmp"
	"strings"

	"github.com/headgate/headgate/internal/sorted"
)

// ranking counts names, and knows which of them has the most.
type ranking struct {
	counts map[string]int
	order  *sorted.List[rank]
}

type rank struct {
	n    int
	name string
}

func newRanking() *ranking {
	return &ranking{counts: map[string]int{}, order: sorted.New(func(a, b rank) int {
		return cmp.Or(cmp.Compare(a.n, b.n), strings.Compare(a.name, b.name))
	})}
}

func (r *ranking) add(name string, n int) {
	was := r.counts[name]
	r.order.Remove(rank{was, name})
	if was+n <= 0 {
		delete(r.counts, name)
		return
	}
	r.counts[name] = was + n
	r.order.Add(rank{was + n, name})
}

// most returns who has the most, of several the last by name.
func (r *ranking) most() rank {
	top, _ := r.order.Last()
	return top
}
