package system

import (
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/loadtest/internal/drive"
	"github.com/headgate/headgate/loadtest/internal/figures"
	"github.com/headgate/headgate/loadtest/internal/load"
)

// few lets so many jobs run at a time, and counts those that it refused.
type few struct {
	most              int64
	underWay, refused atomic.Int64
}

func (f *few) Acquire() (release func(bool), ok bool) {
	if f.underWay.Add(1) > f.most {
		f.underWay.Add(-1)
		f.refused.Add(1)
		return nil, false
	}
	return func(bool) { f.underWay.Add(-1) }, true
}

// TestAJobThatALimiterRefusesRunsLater: each is tried once, so one that counted as a failure would be a dead letter.
func TestAJobThatALimiterRefusesRunsLater(t *testing.T) {
	t.Parallel()
	spec := load.DefaultSpec()
	spec.Rate, spec.Duration, spec.Slots, spec.Overload = 200, time.Second, 20, 1
	plan, err := load.New("overload", spec)
	if err != nil {
		t.Fatal(err)
	}
	plan.Overload.MaxWait = time.Minute // None is late.
	limiter := &few{most: int64(spec.Slots) / 2}
	ran, err := drive.Run(t.Context(), plan, OpenLimited("few", func(int) Limiter { return limiter }), drive.Config{AsynqPoll: 20 * time.Millisecond, Notes: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	f := figures.Of(ran)
	if f.System != "few" || f.Completed != f.Sent || f.Dead != 0 || f.Lost != 0 {
		t.Errorf("%s: %d of %d done, %d dead, %d lost", f.System, f.Completed, f.Sent, f.Dead, f.Lost)
	}
	if limiter.refused.Load() == 0 || limiter.underWay.Load() != 0 {
		t.Errorf("%d were refused, and %d are still under way", limiter.refused.Load(), limiter.underWay.Load())
	}
}
