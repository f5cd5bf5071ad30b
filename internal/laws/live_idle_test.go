package laws_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/internal/redistest"
	sdk "github.com/headgate/headgate/producer"
)

const idleRole = "idle"

// idleBound is how many commands a second an idle process may send.
const idleBound = 5

// stay is a producer that enqueues nothing, and prints "MICROSECONDS VERSION" of each policy that it reads.
func (p *player) stay(ctx context.Context) error {
	enqueuer, err := sdk.New(p.store, sdk.Config{Logger: zerolog.New(versionWriter(func(r reading) { fmt.Fprintln(os.Stdout, r.At, r.Version) }))})
	if err != nil {
		return err
	}
	return enqueuer.Run(ctx)
}

// reading is when a version of the policy was read, in microseconds.
type reading struct{ At, Version int64 }

// versionWriter is told of the lines of a log that say that a version was read.
type versionWriter func(reading)

func (w versionWriter) Write(line []byte) (int, error) {
	var read struct{ Version *int64 }
	err := json.Unmarshal(line, &read)
	if read.Version != nil {
		w(reading{time.Now().UnixMicro(), *read.Version})
	}
	return len(line), err
}

// TestIdleProcessesKnowALimitThatWasChangedOverHTTP: within a second of the answer eight producers that enqueue nothing,
// and the server itself, have read the new version; and meanwhile each sends Redis less than idleBound commands a second.
// One that knows late by design is late every time, so the limit is changed until all of them knew in time, for a minute: the
// machine may be late too.
func TestIdleProcessesKnowALimitThatWasChangedOverHTTP(t *testing.T) {
	t.Parallel()
	f := newOffice(t)
	proxy := redistest.NewProxy(t, f.server.Addr())
	for i := range liveProducers {
		f.run(idleRole, i, proxy.Addr(), func(line string) {
			var r reading
			if _, err := fmt.Sscan(line, &r.At, &r.Version); err != nil {
				t.Errorf("an idle producer printed %q", line)
			}
			f.read <- r
		})
	}
	f.allRead(1)
	least, version := time.Hour, int64(1)
	for end := time.Now().Add(time.Minute); version <= liveRounds || least >= liveEffect && time.Now().Before(end); {
		changed := f.set(`{"tokens":7,"per":"1s","burst":` + strconv.FormatInt(version, 10) + `}`)
		version++
		least = min(least, f.allRead(version).Sub(changed))
	}
	if least >= liveEffect {
		t.Errorf("the last to know did %s after the change at best", least)
	}
	const looks = 6 * liveProducers
	began, before := time.Now(), proxy.Commands()
	for poll := time.Tick(10 * time.Millisecond); proxy.Commands() < before+looks; {
		<-poll
	}
	rate := looks / time.Since(began).Seconds() / liveProducers
	if rate >= idleBound {
		t.Errorf("an idle producer sends %.1f commands a second", rate)
	}
	f.end()
	t.Logf("the last process knew %s after the change was answered at best; an idle one sends %.1f commands a second", least, rate)
}

// allRead waits until the server and all idle producers have read a version, and returns when the last of them had.
func (f *fleet) allRead(version int64) (last time.Time) {
	f.Helper()
	giveUp := time.After(time.Minute)
	for know := 0; know < liveProducers+1; {
		select {
		case r := <-f.read:
			if r.Version != version {
				continue
			}
			know++
			if at := time.UnixMicro(r.At); at.After(last) {
				last = at
			}
		case <-giveUp:
			f.Fatalf("%d of %d processes know version %d", know, liveProducers+1, version)
		}
	}
	return last
}
