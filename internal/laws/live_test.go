package laws_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	sdk "github.com/headgate/headgate/producer"
)

const (
	producerRole = "producer"
	// producerPace is how often each of the producers enqueues.
	producerPace = 10 * time.Millisecond
	// liveProducers is how many there are, and liveRounds how often their tenant's limit is raised and lowered.
	liveProducers = 8
	liveRounds    = 4
	// liveEffect is by when a changed limit has to be in force everywhere.
	liveEffect = time.Second
)

// produce enqueues for one tenant, and prints "BEGAN DECISION" of each try, in microseconds.
func (p *player) produce(ctx context.Context) error {
	enqueuer, err := sdk.New(p.store, sdk.Config{Timeout: 20 * time.Second}) // A busy machine.
	if err != nil {
		return err
	}
	pace := time.NewTicker(producerPace)
	defer pace.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return p.out.Flush()
		case <-pace.C:
		}
		job := admission.NewJob("acme", "mail", "t", nil)
		job.ID = fmt.Sprintf("%s-%d", p.name, n)
		began := time.Now()
		verdict, err := enqueuer.Enqueue(ctx, job)
		if _, refused := errors.AsType[*admission.RefusedError](err); err != nil && !refused {
			return err
		}
		fmt.Fprintf(p.out, "%d %s\n", began.UnixMicro(), verdict.Decision)
		if err := p.out.Flush(); err != nil {
			return err
		}
	}
}

// try is one Enqueue of a producer.
type try struct {
	began    time.Time
	admitted bool
}

// fleet is producers as processes, and the API that changes their limit.
type fleet struct {
	*site
	url, key string
	// read has what idle processes, and the server, read of the policy.
	read     chan reading
	commands []*exec.Cmd
	inputs   []io.Closer
	readers  sync.WaitGroup
	seen     struct {
		sync.Mutex
		tries [liveProducers][]try
	}
}

// TestALimitChangedOverHTTPIsInForceEverywhere: with eight producers at work, a tenant's limit that is raised or lowered
// over HTTP decides within a second what each of them is told. They are the same processes all the time, and once a
// limit of one token an hour is in force, one job enters at most.
func TestALimitChangedOverHTTPIsInForceEverywhere(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	var longest time.Duration
	for range liveRounds {
		f.set(`{"tokens":1000000,"per":"1s","burst":1000000}`)
		longest = max(longest, f.follow(true))
		lowered := f.set(`{"tokens":1,"per":"1h","burst":1}`)
		longest = max(longest, f.follow(false))
		if n := f.admittedSince(lowered); n > 1 {
			t.Errorf("law L1: %d jobs entered since the limit is one an hour", n)
		}
	}
	f.end()
	t.Logf("the last try that was decided by the old limit began %s after the change was answered", longest)
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := newOffice(t)
	for i := range liveProducers {
		f.start(i)
	}
	return f
}

// newOffice returns a fleet without producers, whose tenant has a limit.
func newOffice(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{site: newSite(t, redistest.Shared(t)), read: make(chan reading, 10_000)}
	enqueuer, err := sdk.New(f.store, sdk.Config{})
	f.check(err)
	key, line, err := access.NewKey(access.Principal{Name: "ops", Role: access.Operator})
	f.check(err)
	keys, err := access.ParseKeys(line)
	f.check(err)
	server, err := admin.New(admin.Config{
		Store: f.store, Enqueuer: enqueuer, Credentials: access.Credentials{Keys: keys}, Logger: zerolog.New(versionWriter(func(r reading) { f.read <- r })),
	})
	f.check(err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	f.check(err)
	serving, stop := context.WithCancel(t.Context())
	var served sync.WaitGroup
	served.Go(func() {
		if err := server.Serve(serving, listener); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		served.Wait()
	})
	f.url, f.key = "http://"+listener.Addr().String()+"/api/v1/rate-limit/config/acme", key
	f.set(`{"tokens":1,"per":"1h","burst":1}`)
	t.Cleanup(func() {
		for _, command := range f.commands {
			_ = command.Process.Kill() // Those that have ended do not mind.
		}
	})
	return f
}

// start runs a producer.
func (f *fleet) start(i int) {
	f.Helper()
	f.run(producerRole, i, f.server.Addr(), func(line string) {
		began, decision, _ := strings.Cut(line, " ")
		micros, err := strconv.ParseInt(began, 10, 64)
		if err != nil {
			f.Errorf("a producer printed %q", line)
		}
		f.seen.Lock()
		f.seen.tries[i] = append(f.seen.tries[i], try{time.UnixMicro(micros), decision == admission.Admitted.String()})
		f.seen.Unlock()
	})
}

// run runs this binary again in a role, and shows each line that it prints.
func (f *fleet) run(role string, i int, addr string, show func(line string)) {
	f.Helper()
	binary, err := os.Executable()
	f.check(err)
	//nolint:gosec // It is this binary.
	command := exec.CommandContext(f.Context(), binary)
	command.Env = append(os.Environ(), roleVariable+"="+role, nameVariable+"=p"+strconv.Itoa(i), prefixVariable+"="+f.prefix,
		addrVariable+"="+addr)
	command.SysProcAttr = dieWithParent()
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	f.check(err)
	output, err := command.StdoutPipe()
	f.check(err)
	f.check(command.Start())
	f.commands, f.inputs = append(f.commands, command), append(f.inputs, input)
	f.readers.Go(func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			show(lines.Text())
		}
	})
}

// set changes the limit over HTTP and returns when that was answered.
func (f *fleet) set(limit string) time.Time {
	f.Helper()
	seen := f.call(http.MethodGet, "", "")
	f.call(http.MethodPut, limit, seen.Get("Etag"))
	return time.Now()
}

func (f *fleet) call(method, body, etag string) http.Header {
	f.Helper()
	request, err := http.NewRequestWithContext(f.Context(), method, f.url, strings.NewReader(body))
	f.check(err)
	request.Header.Set("Authorization", "Bearer "+f.key)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("If-Match", etag)
	}
	answer, err := http.DefaultClient.Do(request)
	f.check(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	f.check(err)
	if answer.StatusCode != http.StatusOK {
		f.Fatalf("%s: %d %s", method, answer.StatusCode, text)
	}
	return answer.Header
}

// follow waits until every producer has been told the new for longer than a change may take, and asserts that it began
// within that time and stayed. It returns the longest time that it took.
func (f *fleet) follow(admitted bool) (longest time.Duration) {
	f.Helper()
	changed := time.Now()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for !f.allSince(changed.Add(liveEffect)) {
		<-poll.C
		if time.Since(changed) > time.Minute {
			f.Fatal("not all producers go on")
		}
	}
	f.seen.Lock()
	defer f.seen.Unlock()
	for i, tries := range f.seen.tries {
		for _, t := range slices.Backward(tries) {
			if t.began.Before(changed) {
				break
			}
			if t.admitted == admitted {
				continue
			}
			if late := t.began.Sub(changed); late < liveEffect {
				longest = max(longest, late)
			} else {
				f.Errorf("producer %d was told otherwise %s after the change", i, late)
			}
		}
	}
	return longest
}

// allSince reports whether every producer has begun a try after a time.
func (f *fleet) allSince(since time.Time) bool {
	f.seen.Lock()
	defer f.seen.Unlock()
	for _, tries := range f.seen.tries {
		if len(tries) == 0 || tries[len(tries)-1].began.Before(since) {
			return false
		}
	}
	return true
}

func (f *fleet) admittedSince(since time.Time) (n int) {
	f.seen.Lock()
	defer f.seen.Unlock()
	for _, tries := range f.seen.tries {
		for _, t := range tries {
			if t.admitted && t.began.After(since) {
				n++
			}
		}
	}
	return n
}

// end asserts that the producers are the processes that were started.
func (f *fleet) end() {
	f.Helper()
	for _, input := range f.inputs {
		f.check(input.Close())
	}
	f.readers.Wait()
	for i, command := range f.commands {
		if err := command.Wait(); err != nil {
			f.Errorf("producer %d: %v", i, err)
		}
	}
}
