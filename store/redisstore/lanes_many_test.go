package redisstore

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/looking"
)

// elements counts the elements of the longest reply and of all replies of a client, its commands, and how often it waited for some.
type elements struct {
	mu                            sync.Mutex
	longest, all, commands, trips int
	by                            string
}

func (e *elements) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (e *elements) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		e.count(cmd)
		e.trip()
		return err
	}
}

func (e *elements) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			e.count(cmd)
		}
		e.trip()
		return err
	}
}

func (e *elements) trip() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.trips++
}

func (e *elements) count(cmd redis.Cmder) {
	n := 1
	switch c := cmd.(type) {
	case *redis.StringSliceCmd:
		n = len(c.Val())
	case *redis.SliceCmd:
		n = len(c.Val())
	case *redis.MapStringStringCmd:
		n = 2 * len(c.Val())
	case *redis.ZSliceCmd:
		n = len(c.Val())
	case *redis.ScanCmd:
		page, _ := c.Val()
		n = len(page)
	case *redis.XMessageSliceCmd:
		n = len(c.Val())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.commands++
	e.all += n
	if n > e.longest {
		e.longest, e.by = n, fmt.Sprint(cmd.Args()[:min(3, len(cmd.Args()))])
	}
}

// TestAPageLooksAtABoundedNumberOfAnything: with thousands of lanes of one tenant a page reads in proportion to what it returns, no
// reply grows with the lanes, and the pages list every job once.
func TestAPageLooksAtABoundedNumberOfAnything(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	const lanes = 3000
	var jobs []admission.Job
	for i := range lanes {
		j := mail("evil", fmt.Sprint("j", i))
		j.Downstream = fmt.Sprint("made-up-", i)
		jobs = append(jobs, j)
	}
	y.admit(jobs...)
	client := redistest.Shared(t).Client(t)
	counted := &elements{}
	client.AddHook(counted)
	s, err := openOnly(t.Context(), client, y.store.config)
	check(t, err)
	for _, q := range []store.ListQuery{{Place: admission.PlaceWaiting}, {Place: admission.PlaceWaiting, Tenant: "evil"}} {
		seen := map[string]bool{}
		for q.Limit = 50; ; {
			*counted = elements{}
			page, err := s.List(t.Context(), q)
			check(t, err)
			if n := len(page.Jobs); counted.longest > 2*looking.SmallHash || counted.all > 60*(n+5) {
				t.Fatalf("a page of %d read %d elements by %d commands, at most %d by %s", n, counted.all, counted.commands, counted.longest, counted.by)
			}
			for _, job := range page.Jobs {
				if seen[job.Key.ID] {
					t.Fatalf("%s is listed twice", job.Key.ID)
				}
				seen[job.Key.ID] = true
			}
			if len(page.Cursor) > 8192 {
				t.Errorf("a cursor of %d bytes", len(page.Cursor))
			}
			if q.Cursor = page.Cursor; q.Cursor == "" {
				break
			}
		}
		if len(seen) != lanes {
			t.Errorf("%d jobs were listed, want %d", len(seen), lanes)
		}
	}
	*counted = elements{}
	top, partial, err := s.WaitingTenants(t.Context(), "mail", 3)
	check(t, err)
	if len(top) != 1 || !partial || top[0].Waiting < looking.LaneLook || counted.longest > looking.LaneLook+1 {
		t.Errorf("%+v, partial %t, %d elements at most", top, partial, counted.longest)
	}
}

// TestFewLanesAreListedByName: those of a tenant that has few, while others of it come and go, each once.
func TestFewLanesAreListedByName(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	for i := range 40 {
		j := mail("acme", fmt.Sprintf("j%02d", i))
		j.Downstream = fmt.Sprintf("d%02d", i%20)
		y.admit(j)
	}
	y.admit(mail("acme", "none"))
	var got []string
	for q := (store.ListQuery{Place: admission.PlaceWaiting, Limit: 3}); ; {
		page, err := y.store.List(t.Context(), q)
		check(t, err)
		for _, job := range page.Jobs {
			got = append(got, job.Key.ID)
		}
		if q.Cursor = page.Cursor; q.Cursor == "" {
			break
		}
	}
	if len(got) != 41 || strings.Count(strings.Join(got, " ")+" ", "none ") != 1 {
		t.Errorf("%d jobs: %v", len(got), got)
	}
}

// TestAPageOfManyTenants: pages of any size list each job once, whether a tenant has one, or more than a page, or several lanes; and where each has one,
// a page waits a few times for some tens of them. A small hash of tenants is walked by name, a large one by HSCAN.
func TestAPageOfManyTenants(t *testing.T) {
	t.Parallel()
	for _, tenants := range []int{looking.SmallHash / 2, 2 * looking.SmallHash} {
		t.Run(strconv.Itoa(tenants), func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			var jobs []admission.Job
			for i := range tenants {
				of, lanes := 1, 1
				switch i % 50 {
				case 7:
					of = 20
				case 9:
					of, lanes = 4, 3
				}
				for k := range of {
					j := mail(fmt.Sprint("t", i), fmt.Sprintf("j%d-%d", i, k))
					j.Downstream = fmt.Sprint("d", k%lanes)
					jobs = append(jobs, j)
				}
				plain := mail(fmt.Sprint("t", i), fmt.Sprint("plain-", i))
				plain.Queue = "report"
				jobs = append(jobs, plain)
			}
			y.admit(jobs...)
			counted, client := &elements{}, redistest.Shared(t).Client(t)
			client.AddHook(counted)
			s, err := openOnly(t.Context(), client, y.store.config)
			check(t, err)
			for _, limit := range []int{7, 33, 1000} {
				seen := map[string]bool{}
				for q := (store.ListQuery{Place: admission.PlaceWaiting, Limit: limit}); ; {
					page, err := s.List(t.Context(), q)
					check(t, err)
					for _, job := range page.Jobs {
						if seen[job.Key.ID] {
							t.Fatalf("%s is listed twice", job.Key.ID)
						}
						seen[job.Key.ID] = true
					}
					if q.Cursor = page.Cursor; q.Cursor == "" {
						break
					}
				}
				if len(seen) != len(jobs) {
					t.Errorf("%d of %d jobs are listed in pages of %d", len(seen), len(jobs), limit)
				}
			}
			*counted = elements{}
			page, err := s.List(t.Context(), store.ListQuery{Place: admission.PlaceWaiting, Queue: "report", Limit: 1000})
			check(t, err)
			if len(page.Jobs) != tenants || counted.trips > tenants/5 {
				t.Errorf("%d round trips for %d jobs of %d tenants", counted.trips, len(page.Jobs), tenants)
			}
		})
	}
}
