package limiter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// semaphoreVariable makes a process of this test binary so many clients of a semaphore: "PREFIX LEASE CLIENTS URL".
const semaphoreVariable = "HEADGATE_SEMAPHORE_CHILD"

const (
	semaphoreMax      = 5
	semaphoreChildren = 4
	semaphoreClients  = 16 // of each
)

// semaphorePolicy lets so many be held.
func semaphorePolicy(most int) *policy.Policy {
	p := policy.Unlimited()
	p.Semaphores = map[string]policy.SemaphoreRules{"gpu": {Max: most}}
	return &p
}

// hold has clients hold permits until it is killed or its stdin ends. It says when each begins to work, and when it ends or hears that
// it lost its permits.
func hold(at string) int {
	var url, prefix, text string
	var clients int
	_, _ = fmt.Sscan(at, &prefix, &text, &clients, &url)
	lease, err := time.ParseDuration(text)
	if err != nil {
		return 1
	}
	return inChild(url, prefix, semaphorePolicy(semaphoreMax), func(ctx context.Context, _ store.Deployment, l *Limiter) int {
		var group sync.WaitGroup
		for range clients {
			group.Go(func() {
				for ctx.Err() == nil {
					holdOnce(ctx, l.Semaphore("gpu").WithLease(lease))
				}
			})
		}
		group.Wait()
		return 0
	})
}

func holdOnce(ctx context.Context, s *Semaphore) {
	permits, work := 1+rand.IntN(2), time.Duration(5+rand.IntN(30))*time.Millisecond //nolint:gosec // a test's own
	p, err := s.Acquire(ctx, permits)
	if err != nil {
		return
	}
	if rand.IntN(8) == 0 { //nolint:gosec // the same
		work *= 20
	}
	say := func(what string) { fmt.Println(what, p.Token(), permits, time.Now().UnixNano()) } //nolint:forbidigo // to the test
	say("begins")
	select {
	case <-time.After(work):
	case <-p.Context().Done():
	}
	if errors.Is(context.Cause(p.Context()), ErrPermitsLost) { //nolint:contextcheck // That of the permits is asked.
		say("lost")
	} else {
		say("ends")
	}
	_ = p.Release(ctx) // It may be lost.
}

// work is one client's time with permits, in a process.
type work struct {
	process, permits int
	from, till       int64
}

// TestProcessesHoldNoMoreThanTheLimit: 64 clients in processes of which some are killed, one is stopped for longer than a lease, while the
// time of Redis steps. At no moment those at work have more permits than there are; and when all are killed, what they held is back.
func TestProcessesHoldNoMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lease, step time.Duration
	}{
		"the time steps back":        {lease: 1200 * time.Millisecond, step: -time.Hour},
		"the time steps ahead, once": {lease: 16 * time.Second, step: 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := redistest.NewClock(t, 0)
			server := redistest.Start(t, redistest.Options{Clock: clock})
			url, prefix := "redis://"+server.Addr(), redistest.Prefix(t)
			s, err := redisstore.Connect(t.Context(), url, redisstore.Config{Prefix: prefix})
			check(t, err)
			t.Cleanup(func() { _ = s.Close() })
			f := newHolders(t, prefix, c.lease, semaphoreClients)
			for range semaphoreChildren {
				f.spawn(url)
			}
			f.until(50)
			clock.Step(t, c.step)
			f.until(100)
			if c.lease < 2*time.Second {
				f.kill(0)
				f.spawn(url)
				f.pause(1, c.lease+200*time.Millisecond)
				f.until(150)
				f.kill(2)
			}
			f.until(180)
			for i := range f.children {
				f.kill(i)
			}
			f.group.Wait()
			f.assert()
			if c.lease > 2*time.Second {
				return
			}
			allComeBack(t, s)
		})
	}
}

// allComeBack waits for all permits, and returns how long that took.
func allComeBack(t *testing.T, s store.Deployment) time.Duration {
	t.Helper()
	began := time.Now()
	l := start(t, s, Config{Policy: semaphorePolicy(semaphoreMax), Timeout: patient})
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	p, err := l.Semaphore("gpu").Acquire(ctx, semaphoreMax)
	check(t, err)
	took := time.Since(began)
	check(t, p.Release(ctx))
	return took
}

// semaphoreSoak is how long TestSixtyFourProcessesHoldNoMoreThanTheLimit goes on: make semaphores sets it.
const semaphoreSoak = "HEADGATE_SEMAPHORE_SOAK"

// TestSixtyFourProcessesHoldNoMoreThanTheLimit: of 64 processes of a client each some are killed and replaced, some stopped for longer than a lease, eight
// cut off from Redis for longer than one again and again, while the time of Redis is set back. At no moment those at work have more permits than there are,
// and all are back a second after the leases of those who were killed at last.
func TestSixtyFourProcessesHoldNoMoreThanTheLimit(t *testing.T) {
	long, err := time.ParseDuration(os.Getenv(semaphoreSoak))
	if err != nil {
		t.Skip("it is for make semaphores")
	}
	const processes, apart, lease = 64, 8, 1500 * time.Millisecond
	clock := redistest.NewClock(t, 0)
	server := redistest.Start(t, redistest.Options{Clock: clock})
	proxy := redistest.NewProxy(t, server.Addr())
	prefix := redistest.Prefix(t)
	near, far := "redis://"+server.Addr(), "redis://"+proxy.Addr()
	s, err := redisstore.Connect(t.Context(), near, redisstore.Config{Prefix: prefix})
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	f := newHolders(t, prefix, lease, 1)
	for i := range processes {
		f.spawn(map[bool]string{true: near, false: far}[i >= apart])
	}
	f.until(100)
	kills, stops, cuts, steps := 0, 0, 0, 0
	for began := time.Now(); time.Since(began) < long; {
		switch one := apart + rand.IntN(len(f.children)-apart); rand.IntN(4) { //nolint:gosec // a test's own
		case 0:
			if f.killed[one] == 0 {
				f.kill(one)
				f.spawn(near)
				kills++
			}
		case 1:
			if f.killed[one] == 0 && f.paused[one][0] == 0 {
				f.pause(one, lease+200*time.Millisecond)
				stops++
			}
		case 2:
			proxy.Decide(func(redistest.Command) redistest.Action { return redistest.Action{Cut: redistest.CutBefore} })
			proxy.Sever()
			time.Sleep(lease + 200*time.Millisecond) //nolint:forbidigo // how long they are cut off
			proxy.Decide(nil)
			cuts++
		default:
			clock.Step(t, -time.Duration(rand.IntN(3600))*time.Second) //nolint:gosec // a test's own
			steps++
		}
		f.mu.Lock()
		begun := len(f.all)
		f.mu.Unlock()
		f.until(begun + 10)
	}
	for i := range f.children {
		f.kill(i)
	}
	f.group.Wait()
	f.assert()
	took := allComeBack(t, s)
	t.Logf("%d kills, %d stops, %d times cut off, %d steps of the clock; all permits were back %s after the last kill", kills, stops, cuts, steps, took)
	if took > lease+time.Second {
		t.Errorf("all permits were back after %s, want %s at most", took, lease+time.Second)
	}
}

// holders are the processes, and what they have said.
type holders struct {
	t        *testing.T
	at       string
	children []*exec.Cmd
	group    sync.WaitGroup

	mu      sync.Mutex
	all     []*work
	working map[string]*work
	lost    int
	killed  []int64    // when, by process; 0 for not yet
	paused  [][2]int64 // of a process for longer than a lease, from when till when
	news    chan struct{}
}

func newHolders(t *testing.T, prefix string, lease time.Duration, clients int) *holders {
	t.Helper()
	return &holders{t: t, at: fmt.Sprintf("%s %s %d ", prefix, lease, clients), working: map[string]*work{}}
}

// spawn starts a process that works by the Redis at a URL.
func (f *holders) spawn(url string) {
	child := exec.CommandContext(f.t.Context(), os.Args[0])
	child.Env = append(os.Environ(), semaphoreVariable+"="+f.at+url)
	_, err := child.StdinPipe() // It ends with this process.
	check(f.t, err)
	out, err := child.StdoutPipe()
	check(f.t, err)
	check(f.t, child.Start())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.news == nil {
		f.news = make(chan struct{}, 1)
	}
	process := len(f.children)
	f.children, f.killed, f.paused = append(f.children, child), append(f.killed, 0), append(f.paused, [2]int64{})
	f.group.Go(func() {
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			f.hear(process, scanner.Text())
		}
	})
}

func (f *holders) hear(process int, line string) {
	var what, token string
	w := &work{process: process}
	if _, err := fmt.Sscan(line, &what, &token, &w.permits, &w.from); err != nil {
		return // A line of one that was killed.
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if what == "begins" {
		f.working[token] = w
		f.all = append(f.all, w)
	} else if began := f.working[token]; began != nil {
		began.till = w.from
		f.lost += strings.Count(what, "lost")
	}
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// until waits until so many have begun to work.
func (f *holders) until(n int) {
	for {
		f.mu.Lock()
		begun := len(f.all)
		f.mu.Unlock()
		if begun >= n {
			return
		}
		select {
		case <-f.news:
		case <-f.t.Context().Done():
			f.t.Fatal("the test is over")
		}
	}
}

func (f *holders) kill(i int) {
	if f.killed[i] > 0 {
		return
	}
	check(f.t, f.children[i].Process.Kill())
	now := time.Now().UnixNano()
	_, _ = f.children[i].Process.Wait()
	f.mu.Lock()
	f.killed[i] = now
	f.mu.Unlock()
}

// pause stops a process for a while.
func (f *holders) pause(i int, long time.Duration) {
	from := time.Now().UnixNano()
	check(f.t, f.children[i].Process.Signal(syscall.SIGSTOP))
	timer := time.NewTimer(long)
	defer timer.Stop()
	<-timer.C
	f.mu.Lock()
	f.paused[i] = [2]int64{from, time.Now().UnixNano()}
	f.mu.Unlock()
	check(f.t, f.children[i].Process.Signal(syscall.SIGCONT))
}

// assert counts at each beginning who works. One that is stopped does nothing, and hears that it lost its permits when it goes on.
func (f *holders) assert() {
	for _, w := range f.all {
		if w.till == 0 {
			w.till = f.killed[w.process]
		}
		if p := f.paused[w.process]; w.from < p[0] && w.till > p[0] {
			w.till = p[0]
		}
	}
	slices.SortFunc(f.all, func(a, b *work) int { return int(a.from - b.from) })
	most := 0
	for _, now := range f.all {
		held := 0
		for _, w := range f.all {
			if w.from <= now.from && w.till > now.from {
				held += w.permits
			}
		}
		if most = max(most, held); held > semaphoreMax {
			f.t.Fatalf("%d permits at work, there are %d", held, semaphoreMax)
		}
	}
	if most < semaphoreMax-1 {
		f.t.Errorf("at most %d permits were at work of %d", most, semaphoreMax)
	}
	f.t.Logf("%d worked, at most %d permits at a time, %d lost theirs", len(f.all), most, f.lost)
}
