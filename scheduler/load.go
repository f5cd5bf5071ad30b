package scheduler

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// diary keeps how busy queues are, a point each store.LoadStep.
type diary struct{ next time.Time }

// diaryOf returns the diary of a policy, the one that is there already if it is to go on; nil where the policy asks for none.
func diaryOf(compiled *policy.Compiled, known *diary) *diary {
	switch {
	case compiled.LoadEvery() == 0:
		return nil
	case known != nil:
		return known
	}
	return &diary{}
}

// write keeps a point of each queue, of each downstream and of the whole, if it is time. Of more than there may be points those are left out that have least to do.
func (s *Scheduler) write(ctx context.Context, d *diary) error {
	if d == nil || time.Now().Before(d.next) {
		return nil
	}
	d.next = time.Now().Add(store.LoadStep)
	figures, err := s.figures(ctx)
	if err != nil {
		return err
	}
	note := store.LoadNote{Owner: s.owner, Services: map[string]string{}}
	for _, f := range busiest(figures, store.MaxLoadServices) {
		note.Services[f.name] = f.Text()
	}
	// Nobody may have asked for it: a Redis that does not tell it is no trouble.
	if used, err := s.redisMemory(ctx); err == nil && !math.IsNaN(used) {
		note.Services[load.WholeHistory] = load.Whole{RedisMemory: used}.Text()
	}
	err = s.store.NoteLoad(ctx, note)
	if errors.Is(err, store.ErrNotHolder) || errors.Is(err, store.ErrNotMeasured) {
		return nil // Somebody else goes on, or nobody has to.
	}
	return err
}

// figured is how busy a queue or a downstream is, by the name of its history.
type figured struct {
	load.Figures

	name string
}

// busiest returns those that have most to do.
func busiest(all []figured, most int) []figured {
	slices.SortFunc(all, func(a, b figured) int {
		return cmp.Or(cmp.Compare(b.Depth+max(b.Running, 0), a.Depth+max(a.Running, 0)), cmp.Compare(a.name, b.name))
	})
	return all[:min(most, len(all))]
}

// figures returns how busy each queue is, and each downstream of which workers tell.
func (s *Scheduler) figures(ctx context.Context) ([]figured, error) {
	names, err := s.store.QueueNames(ctx)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	seen, err := s.store.Loads(ctx, names)
	if err != nil {
		return nil, err
	}
	samples, err := s.samples(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]figured, 0, len(names))
	for i, name := range names {
		all = append(all, figured{load.Of(name, seen[i].Waiting, samples).Seen(seen[i].Wait, seen[i].Level), name})
	}
	downstreams := load.Downstreams(samples)
	waiting, err := s.store.WaitingFor(ctx, downstreams)
	if err != nil {
		return nil, err
	}
	for i, name := range downstreams {
		all = append(all, figured{load.OfDownstream(name, waiting[i], samples), load.DownstreamHistory(name)})
	}
	return all, nil
}

// redisMemory returns which part of its maxmemory Redis uses, NaN where it has none.
func (s *Scheduler) redisMemory(ctx context.Context) (float64, error) {
	used, most, err := s.store.Memory(ctx)
	if err != nil || most == 0 {
		return math.NaN(), err
	}
	return float64(used) / float64(most), nil
}

// samples returns what workers told.
func (s *Scheduler) samples(ctx context.Context) ([]load.Sample, error) {
	told, err := s.store.WorkerLoads(ctx)
	return load.ParseAll(told, func(l *store.WorkerLoad) string { return l.Text }), err
}
