package limiter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
)

// TestALimiterIsClosedByManyWhileManyAsk: with contexts that have ended too, and where its store was closed before. Who asks is
// answered, or told that it is closed; and what was admitted and what is left is no more than a burst.
func TestALimiterIsClosedByManyWhileManyAsk(t *testing.T) {
	t.Parallel()
	const burst, piece = 1_000_000, 1000
	for name, storeFirst := range map[string]bool{"its store is open": false, "its store is closed first": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, prefix := redistest.Shared(t), redistest.Prefix(t)
			s, err := redisstore.Connect(t.Context(), server.URL(), redisstore.Config{Prefix: prefix})
			check(t, err)
			t.Cleanup(func() { _ = s.Close() })
			own := limited(none, admission.Limit{Tokens: 10_000, Per: 24 * time.Hour, Burst: burst})
			l := start(t, s, Config{Policy: own, Outage: OutageClosed, Timeout: time.Second, Minutes: true})
			var admitted atomic.Int64
			begun := make(chan struct{})
			begin := sync.OnceFunc(func() { close(begun) })
			var running sync.WaitGroup
			for range 8 {
				running.Go(func() {
					for {
						v, err := l.Check(t.Context(), Request{Tenant: "acme"})
						if errors.Is(err, ErrClosed) {
							return
						}
						if err != nil {
							t.Error(err)
							return
						}
						if v.Admitted {
							admitted.Add(1)
						}
						begin()
					}
				})
			}
			if storeFirst {
				check(t, s.Close())
			}
			<-begun
			for i := range 6 {
				running.Go(func() {
					ctx, end := context.WithCancel(t.Context())
					defer end()
					if i%2 == 0 {
						end()
					}
					_ = l.Close(ctx)
				})
			}
			running.Wait()
			err = l.Close(t.Context())
			if storeFirst {
				return // Nobody hears of what it gives back.
			}
			check(t, err)
			again, err := redisstore.Open(t.Context(), server.Client(t), redisstore.Config{Prefix: prefix})
			check(t, err)
			fresh := start(t, again, Config{Policy: own, Exact: true, Outage: OutageClosed})
			left := int64(0)
			for {
				v, err := fresh.Check(t.Context(), Request{Tenant: "acme", Cost: piece})
				check(t, err)
				if !v.Admitted {
					break
				}
				left += piece
			}
			check(t, fresh.Close(t.Context()))
			if admitted.Load()+left > burst {
				t.Errorf("%d were admitted and %d are left of %d", admitted.Load(), left, burst)
			}
		})
	}
}

// panicking is a hook of a client that panics at each command with a word that ends as it is told, while it is told anything.
type panicking struct{ at *atomic.Pointer[string] }

func (p panicking) on(end string) { p.at.Store(&end) }
func (p panicking) off()          { p.at.Store(nil) }

func (panicking) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p panicking) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		if end := p.at.Load(); end != nil && slices.ContainsFunc(command.Args(), func(word any) bool { return strings.HasSuffix(fmt.Sprint(word), *end) }) {
			panic("too much")
		}
		return next(ctx, command)
	}
}

func (panicking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// logged is a log that is read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// says reports whether a line has the message and the panic.
func (l *logged) says(message string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, message) && strings.Contains(line, "panic: too much") {
			return true
		}
	}
	return false
}

// TestAPanicOfAHookStrandsNobody, and ends no process: on the goroutines of a limiter it is an answer that did not come.
func TestAPanicOfAHookStrandsNobody(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 3} {
		client, panics, log := redistest.Shared(t).Client(t), panicking{&atomic.Pointer[string]{}}, &logged{}
		client.AddHook(panics)
		s, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: redistest.Prefix(t) + strconv.Itoa(partitions), Partitions: partitions})
		check(t, err)
		p := limited(admission.PerSecond(1e6), admission.PerSecond(1e6))
		p.Version = 1
		put(t, s, p)
		l, r := start(t, s, Config{Timeout: patient, Outage: OutageOpen, Minutes: true, Logger: zerolog.New(log)}), Request{Tenant: "acme"}
		panics.on("") // The policy is not read.
		if v := ask(t, l, r); v.Source != Blind || !v.Admitted || !log.says("a call of redis panicked") {
			t.Errorf("%d partitions: %+v", partitions, v)
		}
		panics.on("_count")
		until(t, l, r)
		redistest.Await(t, "the log to say that decisions are not counted", func() bool { return log.says("decisions are not counted") })
		panics.off()
		gpu, err := l.Semaphore("gpu").WithLease(time.Second).TryAcquire(t.Context(), 1)
		check(t, err)
		redistest.Await(t, "tokens on lease", func() bool { return ask(t, l, r).Source == Leased })
		panics.on("")
		<-gpu.Context().Done()
		if cause := context.Cause(gpu.Context()); !errors.Is(cause, ErrPermitsLost) {
			t.Errorf("%d partitions: the permits are gone for %v", partitions, cause)
		}
		redistest.Await(t, "the lease to end", func() bool { return ask(t, l, r).Source == Blind })
		if partitions > 1 { // Each is closed on a goroutine of its own.
			if err := l.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "too much") {
				t.Errorf("Close: %v", err)
			}
			continue
		}
		panics.off()
		until(t, l, r)
		redistest.Await(t, "tokens on lease again", func() bool { return ask(t, l, r).Source == Leased })
		check(t, l.Close(t.Context()))
		for name, of := range l.ways.scopes.All() {
			if of.accounting.Load() || of.paying.Load() || of.owes() > 0 {
				t.Errorf("%s is left with a call under way, or owes %d tokens", name, of.owes())
			}
		}
	}
}
