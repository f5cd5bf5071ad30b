package crash_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
)

// told is what a caller was told of its job.
type told int

const (
	toldIn told = iota
	toldNotSent
	toldUnknown
	toldElse
	kindsOfTold
)

// asked is one job of an open load.
type asked struct {
	id           string
	began, ended time.Time
	told         told
}

// mostAsking is how many callers of an openLoad there are at a time: those of two seconds, and as many more. A machine that is slower than the load leaves out what
// comes beyond them, or it would have more and more to do.
const mostAsking = 4096

// openLoad enqueues jobs at a rate whatever becomes of them, each from a goroutine of its own, as requests come in.
type openLoad struct {
	tb    testing.TB
	enter func(ctx context.Context, id string) (told, string)
	every time.Duration
	stop  context.CancelFunc
	// running are the callers, asking of them, and the one that starts them.
	running sync.WaitGroup
	asking  atomic.Int64

	mu struct {
		sync.Mutex

		asked []asked // that have been answered
		count [kindsOfTold]int
		last  string // the text of the last toldElse
	}
}

// beginLoad begins one of so many jobs a second. It ends with end, or the test.
func beginLoad(tb testing.TB, rate int, enter func(ctx context.Context, id string) (told, string)) *openLoad {
	tb.Helper()
	ctx, stop := context.WithCancel(tb.Context())
	l := &openLoad{tb: tb, enter: enter, every: time.Second / time.Duration(rate), stop: stop}
	l.running.Go(func() { l.run(ctx) })
	tb.Cleanup(func() { l.end() })
	return l
}

// run begins what is due at each tick: a machine that was busy makes up for it.
func (l *openLoad) run(ctx context.Context) {
	ticker := time.NewTicker(max(l.every, time.Millisecond))
	defer ticker.Stop()
	began := time.Now()
	for n := 0; ; {
		for ; time.Duration(n)*l.every <= time.Since(began); n++ {
			if l.asking.Load() >= mostAsking {
				continue
			}
			id := fmt.Sprintf("job-%06d", n)
			l.asking.Add(1)
			l.running.Go(func() {
				defer l.asking.Add(-1)
				l.ask(context.WithoutCancel(ctx), id)
			})
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (l *openLoad) ask(ctx context.Context, id string) {
	a := asked{id: id, began: time.Now()}
	var text string
	a.told, text = l.enter(ctx, id)
	a.ended = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.asked = append(l.mu.asked, a)
	if l.mu.count[a.told]++; a.told == toldElse {
		l.mu.last = text
	}
}

// end returns what all callers were told.
func (l *openLoad) end() []asked {
	l.stop()
	l.running.Wait()
	return l.mu.asked
}

// counts returns how many were told what so far.
func (l *openLoad) counts() [kindsOfTold]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.count
}

// await waits until so many more were told something.
func (l *openLoad) await(more int, what ...told) {
	l.tb.Helper()
	sum := func() (n int) {
		counts := l.counts()
		for _, kind := range what {
			n += counts[kind]
		}
		return n
	}
	from := sum()
	ctx, cancel := context.WithTimeout(l.tb.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for sum() < from+more {
		select {
		case <-ctx.Done():
			l.tb.Fatalf("%d of %d more were told %v; %v", sum()-from, more, what, l.counts())
		case <-tick.C:
		}
	}
}

// toldBy says what a producer's answer means.
func toldBy(err error) told {
	switch {
	case err == nil:
		return toldIn
	case errors.Is(err, admission.ErrOutcomeUnknown):
		return toldUnknown
	case errors.Is(err, admission.ErrUnavailable):
		return toldNotSent
	}
	return toldElse
}

// loadJob is one of the load; twenty tenants take turns.
func loadJob(id string) admission.Job {
	job := admission.NewJob("tenant-"+id[len(id)-1:], "mail", "send", []byte(`{}`))
	job.ID = id
	return job
}

// inProcess enqueues by a producer of its own.
func inProcess(tb testing.TB, store store.Deployment, timeout time.Duration) func(context.Context, string) (told, string) {
	tb.Helper()
	unlimited := policy.Unlimited()
	p, err := producer.New(store, producer.Config{Timeout: timeout, Policy: &unlimited})
	if err != nil {
		tb.Fatal(err)
	}
	return func(ctx context.Context, id string) (told, string) {
		_, err := p.Enqueue(ctx, loadJob(id))
		return toldBy(err), fmt.Sprint(err)
	}
}

// overHTTP enqueues by the admin API.
func overHTTP(tb testing.TB, store store.Deployment, timeout time.Duration) func(context.Context, string) (told, string) {
	tb.Helper()
	unlimited := policy.Unlimited()
	p, err := producer.New(store, producer.Config{Timeout: timeout, Policy: &unlimited})
	if err != nil {
		tb.Fatal(err)
	}
	key, line, err := access.NewKey(access.Principal{Name: "load", Role: access.Operator})
	if err != nil {
		tb.Fatal(err)
	}
	keys, err := access.ParseKeys(line)
	if err != nil {
		tb.Fatal(err)
	}
	config := admin.Config{Store: store, Enqueuer: p}
	config.Credentials.Keys = keys
	server, err := admin.New(config)
	if err != nil {
		tb.Fatal(err)
	}
	front := httptest.NewServer(server.Handler())
	tb.Cleanup(front.Close)
	client := front.Client()
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = 500
	return func(ctx context.Context, id string) (told, string) {
		job := loadJob(id)
		body := fmt.Sprintf(`{"tenant":%q,"queue":%q,"type":%q,"id":%q,"payload":{}}`, job.Tenant, job.Queue, job.Type, job.ID)
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, front.URL+"/api/v1/jobs", strings.NewReader(body))
		if err != nil {
			return toldElse, err.Error()
		}
		request.Header.Set("Authorization", "Bearer "+key)
		request.Header.Set("Content-Type", "application/json")
		answer, err := client.Do(request)
		if err != nil {
			return toldElse, err.Error()
		}
		defer func() { _ = answer.Body.Close() }()
		switch answer.StatusCode {
		case http.StatusCreated:
			return toldIn, ""
		case http.StatusServiceUnavailable:
			return toldNotSent, ""
		case http.StatusGatewayTimeout:
			return toldUnknown, ""
		}
		text, _ := io.ReadAll(answer.Body)
		return toldElse, answer.Status + " " + string(text)
	}
}
