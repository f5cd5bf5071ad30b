package crash_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

const (
	callerSlots    = 8
	callerMinCalls = 10
	// callTimeout is longer than a call is slow, so that a downstream that hangs burns what it holds and no more.
	callTimeout = 1500 * time.Millisecond
	// offerPace is how often a producer offers a batch.
	offerPace    = 50 * time.Millisecond
	offerTenants = 200
	// callAttempts is more than an outage may burn of one job.
	callAttempts = 25
)

// callRules lets a breaker walk through all its states in seconds. A call is slow after the longest stall that a busy
// machine is expected to put into most calls of a window.
func callRules() breaker.Config {
	return breaker.Config{
		Window: 4 * time.Second, MinCalls: callerMinCalls, FailureThreshold: callerMinCalls, SlowCallDuration: 500 * time.Millisecond,
		SuccessThreshold: 3, ProbeTimeout: time.Second, OpenBase: 500 * time.Millisecond, OpenMax: time.Second,
	}
}

var callQueues = []store.QueueWeight{{Queue: "call", Weight: 1}}

// caller is a worker whose handler calls downstreams.
type caller struct {
	book   *book
	client *http.Client
	// cut says that this process's network leads to the downstreams that stay well alone.
	cut atomic.Bool
	// tokens are those of the jobs that run, by key.
	tokens sync.Map
}

var errCut = errors.New("network is unreachable")

// answerCalls is the role of a worker. Each line on stdin cuts its network, or mends it.
func (p *player) answerCalls(ctx context.Context, lines <-chan struct{}) error {
	c := &caller{book: p.book}
	urls, err := callURLs(os.Getenv(bookVariable))
	if err != nil {
		return err
	}
	var dialer net.Dialer
	transport := &http.Transport{MaxIdleConnsPerHost: callerSlots, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if c.cut.Load() && !strings.Contains(urls[0], addr) {
			return nil, errCut
		}
		return dialer.DialContext(ctx, network, addr)
	}}
	c.client = &http.Client{Transport: transport}
	go func() {
		for range lines {
			c.cut.Store(!c.cut.Load())
			transport.CloseIdleConnections()
			p.book.note("N", nanos(), c.cut.Load())
		}
	}()
	logger := zerolog.New(hearsay{p.book})
	w, err := worker.New(p.store, worker.Config{
		Queues: callQueues, Concurrency: callerSlots, Lease: 10 * time.Second, DrainTimeout: 2 * time.Second, CallTimeout: callTimeout,
		Breaker: callRules(), BreakerLogger: &logger, Observer: c.observer(),
		Backoff: func(int) time.Duration { return 50 * time.Millisecond },
	})
	if err != nil {
		return err
	}
	worker.Register(w, "call", func(ctx context.Context, job worker.Job[string]) error {
		key := admission.Key{Tenant: job.Tenant, ID: job.ID}.String()
		token, _ := c.tokens.Load(key)
		return postCall(ctx, c.client, job.Args, key, fmt.Sprint(token))
	})
	p.book.note("up", nanos())
	return w.Run(ctx)
}

func (c *caller) observer() worker.Observer {
	return worker.Observer{
		Started: func(e worker.Event) {
			c.tokens.Store(e.Key.String(), e.Token)
			c.book.note("T", nanos(), e.Key, e.Downstream, e.Token)
		},
		Finished: func(e worker.Event) {
			c.tokens.CompareAndDelete(e.Key.String(), e.Token)
			c.book.note("F", nanos(), e.Key, e.Downstream, e.Token, e.Outcome, e.Reason)
		},
		Lonely: func(downstream string, lonely bool) { c.book.note("L", nanos(), downstream, lonely) },
	}
}

// hearsay writes down what a worker hears of the fleet's breakers, by what it logs.
type hearsay struct{ book *book }

func (h hearsay) Write(line []byte) (int, error) {
	var event struct{ Downstream, To string }
	if err := json.Unmarshal(line, &event); err == nil && event.To != "" {
		h.book.note("K", nanos(), event.Downstream, event.To)
	}
	return len(line), nil
}

// offer is the role of a producer: half of its jobs call downstreams that stay well. It leaves no job undecided.
func (p *player) offer(ctx context.Context) error {
	sdk, err := producer.New(p.store, producer.Config{Policy: new(policy.Unlimited())})
	if err != nil {
		return err
	}
	urls, err := callURLs(os.Getenv(bookVariable))
	if err != nil {
		return err
	}
	offered := 0
	err = readBook(os.Getenv(bookVariable), func([]string) { offered++ })
	for err == nil && wait(ctx, offerPace) == nil {
		jobs := make([]admission.Job, offerBatch)
		for i := range jobs {
			jobs[i] = offeredJob(urls, p.number, offered+i)
		}
		err = p.decideAll(ctx, sdk, jobs)
		offered += len(jobs)
	}
	return err
}

// offerBatch is the jobs of a producer each offerPace.
const offerBatch = 8

// decideAll asks for jobs until all are in, by the same ids.
func (p *player) decideAll(ctx context.Context, sdk *producer.Producer, jobs []admission.Job) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute) // A job that was sent is decided.
	defer cancel()
	for len(jobs) > 0 {
		results, err := sdk.EnqueueBatch(ctx, jobs)
		var again []admission.Job
		for i, r := range results {
			if r.Err == nil {
				p.book.note("A", jobs[i].ID, jobs[i].Downstream)
			} else {
				again = append(again, jobs[i])
			}
		}
		if jobs = again; ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
	}
	return nil
}

// offeredJob is the same whenever it is asked for.
func offeredJob(urls []string, of, number int) admission.Job {
	dice := rand.New(rand.NewPCG(uint64(of), uint64(number)))
	to := 0
	if len(urls) > 1 && dice.IntN(2) == 0 {
		to = 1 + dice.IntN(len(urls)-1)
	}
	return callJob(urls, to, dice.IntN(offerTenants), fmt.Sprintf("p%d-%d", of, number))
}

func callJob(urls []string, to, tenant int, id string) admission.Job {
	j := admission.NewJob("t"+strconv.Itoa(tenant), callQueues[0].Queue, "call", []byte(urls[to]))
	j.ID, j.Downstream, j.MaxAttempts = id, downstreamName(to), callAttempts
	if to == 0 {
		j.Downstream = wellName(tenant)
	}
	j.Priority = admission.DefaultClasses()[tenant%3].Name
	return j
}
