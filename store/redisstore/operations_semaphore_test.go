package redisstore_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// semaphore asks for permits, keeps them, gives them back, or looks. Each answer may be lost and the call sent again.
func (w *walk) semaphore() {
	for range w.number("asks", 1, 6) {
		w.semaphoreOnce()
	}
	name := pick(w, "looked at", walkSemaphores)
	w.replied("semaphores", func(s store.Partition) redistest.Reply { return redistest.Replied(s.SemaphoreNames(w.ctx)) })
	reply := w.replied("look at "+name, func(s store.Partition) redistest.Reply { return redistest.Replied(s.Semaphore(w.ctx, name)) })
	if state, _ := reply.Values[0].(store.SemaphoreState); state.Held > walkSemaphoreMost {
		w.fatalf("%s holds %d, at most %d were ever allowed", name, state.Held, walkSemaphoreMost)
	}
}

// walkSemaphoreMost is the largest limit that the walk ever says.
const walkSemaphoreMost = 5

var walkSemaphores = []string{"gpu", "ann:gpu", "bob:disk"}

func (w *walk) semaphoreOnce() {
	if w.number("time passes", 0, 2) == 0 {
		w.tick()
	}
	name, token := pick(w, "semaphore", walkSemaphores), fmt.Sprint("t", w.number("token", 0, 7))
	lease := time.Duration(w.number("lease", 1, 20)) * time.Second
	switch pick(w, "call", []string{"acquire", "acquire", "acquire", "release", "extend"}) {
	case "release":
		w.resend = func() {
			w.replied("release "+token+" of "+name, func(s store.Partition) redistest.Reply {
				return redistest.Replied(ended(s.Release(w.ctx, name, token)))
			})
		}
	case "extend":
		w.resend = func() {
			w.replied("extend "+token+" of "+name, func(s store.Partition) redistest.Reply {
				permit, err := s.Extend(w.ctx, name, token, lease)
				return redistest.Replied(permit, ended(err))
			})
		}
	default:
		ask := store.Acquire{
			Version: w.someVersion(), Name: name, Token: token, Permits: pick(w, "permits", []int{1, 1, 2, 3, 6}), Lease: lease,
			Max: pick(w, "max", []int{4, 4, 4, walkSemaphoreMost, 2, 0}), Queue: w.number("queue", 0, 1) == 1,
		}
		if ask.Tenant() != "" {
			if _, ask.Record = w.limitsOf(ask.Tenant()); ask.Record != 0 && w.number("another record", 0, 7) == 0 {
				ask.Record++
			}
		}
		w.resend = func() {
			w.replied(fmt.Sprintf("acquire %+v", ask), func(s store.Partition) redistest.Reply { return redistest.Replied(s.Acquire(w.ctx, ask)) })
		}
	}
	w.resend()
}

// ended says whether a lease had ended, or what else was wrong.
func ended(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, store.ErrLeaseEnded):
		return "ended"
	}
	return err.Error()
}
