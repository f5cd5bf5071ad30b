package limitheader

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
)

func TestABucketIsTold(t *testing.T) {
	t.Parallel()
	daily := admission.TokensPerSecond(10.0 / 86400)
	for _, row := range []struct {
		bucket        Bucket
		retryAfter    time.Duration
		policy, limit string
		untilFull     time.Duration
	}{
		{Bucket{Name: "acme", Rate: daily, Burst: 10, Left: 6}, 0, `"acme";q=10;w=86400;headgate-burst=10`, `"acme";r=6;t=51840`, 34560 * time.Second},
		{Bucket{Name: "acme", Rate: daily, Burst: 10, Left: 6.5}, 4320 * time.Second, `"acme";q=10;w=86400;headgate-burst=10`, `"acme";r=6;t=4320`, 30240 * time.Second},
		{Bucket{Name: "acme", Rate: daily, Burst: 10, Left: 0.5}, 0, `"acme";q=10;w=86400;headgate-burst=10`, `"acme";r=0;t=4320`, 82080 * time.Second},
		{Bucket{Name: "acme", Rate: 2, Burst: 10, Left: -3}, 2 * time.Second, `"acme";q=2;w=1;headgate-burst=10`, `"acme";r=0;t=2`, 6500 * time.Millisecond},
		{Bucket{Name: "acme", Rate: 1000, Burst: 10, Left: 3}, 0, `"acme";q=1000;w=1;headgate-burst=10`, `"acme";r=3;t=1`, 7 * time.Millisecond},
		{Bucket{Name: "acme", Rate: 1.5, Burst: 10, Left: 10}, 0, `"acme";q=90;w=60;headgate-burst=10`, `"acme";r=10;t=7`, 0},
	} {
		if got := row.bucket.Policy(); got != row.policy {
			t.Errorf("policy %s, want %s", got, row.policy)
		}
		if got := row.bucket.Limit(row.retryAfter); got != row.limit {
			t.Errorf("limit %s, want %s", got, row.limit)
		}
		if got := row.bucket.UntilFull(); got != row.untilFull {
			t.Errorf("%+v is full in %s, want %s", row.bucket, got, row.untilFull)
		}
	}
}

// TestAWindowIsTold: what it holds and how long it is, and when the next one begins.
func TestAWindowIsTold(t *testing.T) {
	t.Parallel()
	limit, err := admission.FixedWindow(1000, "168h", "", "Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	b := Bucket{Name: "acme", Rate: limit.Rate(), Burst: limit.Burst, Left: 400, Window: limit.Window}
	left := limit.Window.UntilNext(time.Now())
	if got, want := b.Policy(), `"acme";q=1000;w=604800;headgate-burst=1000`; got != want {
		t.Errorf("policy %s, want %s", got, want)
	}
	if got := b.UntilFull(); got > left || got < left-time.Minute {
		t.Errorf("it is full in %s, want %s", got, left)
	}
	if got, want := b.Limit(time.Second), `"acme";r=400;t=1`; got != want {
		t.Errorf("limit %s, want %s", got, want)
	}
	if b.Left = 1000; b.UntilFull() != 0 {
		t.Errorf("a window that has all is full in %s", b.UntilFull())
	}
}

// TestASlidingWindowIsTold: it begins at no time, so that all of it is back a window and a tenth later at the latest.
func TestASlidingWindowIsTold(t *testing.T) {
	t.Parallel()
	limit, err := admission.SlidingWindow(1000, "1m")
	if err != nil {
		t.Fatal(err)
	}
	b := Bucket{Name: "acme", Rate: limit.Rate(), Burst: limit.Burst, Left: 400, Window: limit.Window}
	if policy, told := b.Policy(), b.Limit(0); policy != `"acme";q=1000;w=60;headgate-burst=1000` || told != `"acme";r=400;t=66` {
		t.Errorf("%s, %s", policy, told)
	}
	if got := b.UntilFull(); got != 66*time.Second-time.Microsecond {
		t.Errorf("it is full in %s", got)
	}
}

// TestAPartOfAWindowIsAsLong: of a limit of all that partitions divide each has a part of the tokens, rounded down, in the same time.
func TestAPartOfAWindowIsAsLong(t *testing.T) {
	t.Parallel()
	for window, seconds := range map[string]string{"1m": "60", "24h": "86400", admission.WindowMonth: "2678400"} {
		limit, err := admission.FixedWindow(100, window, "", "")
		if err != nil {
			t.Fatal(err)
		}
		const parts = 3
		part := Bucket{Name: "global", Rate: limit.Rate() / parts, Burst: limit.Burst / parts, Window: limit.Window}
		if got, want := part.Policy(), `"global";q=33;w=`+seconds+`;headgate-burst=33`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestADelayIsASecondAtTheLeast(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{0: "1", time.Nanosecond: "1", time.Second: "1", 1001 * time.Millisecond: "2", time.Hour: "3600"} {
		if got := Delay(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}
