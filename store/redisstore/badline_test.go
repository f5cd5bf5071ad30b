package redisstore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/lua"
)

// fate is what becomes of a call.
type fate int

const (
	carriedOut fate = iota
	died
	answerLost
	late
)

var fateNames = map[fate]string{carriedOut: "carried out", died: "died", answerLost: "answer lost", late: "late"}

var errFate = errors.New("the line is bad")

// badLine is a line to Redis on which calls of the script share end as was drawn for them, each partition's in their order.
type badLine struct {
	mu struct {
		sync.Mutex
		fates   map[string][]fate // by the key of the call
		met     map[fate]int
		waiting [][]any
	}
}

// The numbers of partitions with which a bad line is used.
const leastDivided, mostDivided = 2, 4

// shareOf is the script share of deployments of so many partitions.
func shareOf(parts int) lua.Script { return lua.Scripts("", strconv.Itoa(parts))["share"]() }

func (l *badLine) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *badLine) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *badLine) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	shares := map[any]bool{}
	for parts := leastDivided; parts <= mostDivided; parts++ {
		shares[shareOf(parts).Function] = true
	}
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		if len(args) < 5 || !shares[args[1]] {
			return next(ctx, cmd)
		}
		f := l.next(args)
		if f == carriedOut {
			return next(ctx, cmd)
		}
		if f == answerLost {
			if err := next(ctx, cmd); err != nil {
				return err
			}
		}
		cmd.SetErr(errFate)
		return errFate
	}
}

func (l *badLine) next(args []any) fate {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, _ := args[3].(string)
	if len(l.mu.fates[key]) == 0 {
		return carriedOut
	}
	f := l.mu.fates[key][0]
	l.mu.fates[key] = l.mu.fates[key][1:]
	l.mu.met[f]++
	if f == late {
		l.mu.waiting = append(l.mu.waiting, slices.Clone(args))
	}
	return f
}

// begin draws what becomes of the next calls, end returns what became of them.
func (l *badLine) begin(fates map[string][]fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.fates, l.mu.met = fates, map[fate]int{}
}

func (l *badLine) end() map[fate]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.fates = nil
	return l.mu.met
}

// late returns what was sent and has not arrived yet.
func (l *badLine) late() [][]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := l.mu.waiting
	l.mu.waiting = nil
	return waiting
}

// waiting returns the same and leaves it on its way.
func (l *badLine) waiting() [][]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.mu.waiting)
}
