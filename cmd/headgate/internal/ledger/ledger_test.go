package ledger

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
)

var epoch = time.UnixMilli(1_700_000_000_000)

func at(millis int) time.Time { return epoch.Add(time.Duration(millis) * time.Millisecond) }

func token(millis int) Token { return Token{Millis: epoch.UnixMilli() + int64(millis)} }

func equal(string, admission.Priority) admission.Weight { return 1 }

// play is one job's life in a test: admitted in millisecond in, started in millisecond out; out 0 means never.
type play struct {
	tenant     string
	class      admission.Priority
	downstream string
	cost       admission.Tokens
	in, out    int
	fails      bool
	straight   bool
	estimate   time.Duration
}

func (p play) write(l *Ledger) {
	job := l.Add(Job{Tenant: p.tenant, Class: p.class, Downstream: p.downstream, Cost: max(1, p.cost)}, at(p.in))
	v := admission.Verdict{Decision: admission.Admitted, Position: 1, EstimatedWait: p.estimate}
	if p.straight {
		v.Position = 0
	}
	l.Decide(job, v)
	if p.out > 0 {
		l.Start(job, token(p.out), at(p.out))
		l.Arrive(job, at(p.in), at(p.out).Sub(at(p.in)))
		l.Deliver(job, token(p.out)) // told twice
		how := Succeeded
		if p.fails {
			how = Failed
		}
		l.End(job, how)
	}
}

func figures(plays []play) Figures {
	l := New(len(plays))
	for _, p := range plays {
		p.write(l)
	}
	return l.Figures(admission.DefaultClasses(), equal)
}

func TestProgressAddsUp(t *testing.T) {
	t.Parallel()
	l := New(4)
	play{tenant: "a", class: "high", in: 1, out: 5}.write(l)
	play{tenant: "a", class: "high", in: 1, out: 6, fails: true}.write(l)
	play{tenant: "b", class: "low", in: 1}.write(l)
	refused := l.Add(Job{Tenant: "b", Class: "low"}, at(1))
	v := admission.Verdict{Decision: admission.Refused, Reason: admission.ReasonLimited, RetryAfter: time.Second}
	l.Decide(refused, v)
	l.Decide(refused, admission.Verdict{Decision: admission.Admitted}) // the first verdict counts
	l.Start(99, Token{}, at(1))                                        // nobody's number
	want := Progress{Asked: 4, Admitted: 3, Refused: 1, Started: 2, Runs: 2, Done: 1, Failures: 1}
	if got := l.Progress(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := l.TenantProgress("b"); got.Asked != 2 || got.Refused != 1 || l.TenantProgress("c") != (Progress{}) {
		t.Errorf("tenant b: %+v", got)
	}
	f := l.Figures(admission.DefaultClasses(), equal)
	if f.Refused[admission.ReasonLimited] != 1 || len(f.Tenants) != 2 || f.Tenants[1].Longest != time.Second {
		t.Errorf("got %+v", f)
	}
	if f.Classes["high"].Dispatched != 2 || f.Classes["high"].Failures != 1 || f.Classes["medium"].Dispatched != 0 {
		t.Errorf("classes %+v", f.Classes)
	}
}

func TestWaitsAreTimedAndCountedInDispatches(t *testing.T) {
	t.Parallel()
	var plays []play
	for i := range 10 { // admitted together, dispatched one after the other
		plays = append(plays, play{tenant: "a", class: "high", in: 5, out: 10 * (i + 1)})
	}
	plays = append(plays, play{tenant: "light", class: "low", in: 55, out: 95}) // after the dispatches at 60, 70, 80, 90
	plays = append(plays, play{tenant: "light", class: "medium", in: 96, out: 96, straight: true})
	f := figures(plays)
	high := f.Classes["high"]
	if high.Steps != (Steps{P50: 4, P99: 11, Max: 11}) { // the last waits for nine of its own and two of the light one
		t.Errorf("high waited %+v steps", high.Steps)
	}
	if high.Wait != (Waits{P50: 45 * time.Millisecond, P99: 95 * time.Millisecond, Max: 95 * time.Millisecond}) {
		t.Errorf("high waited %+v", high.Wait)
	}
	if low := f.Classes["low"].Steps; low.Max != 4 {
		t.Errorf("low waited %+v steps", low)
	}
	if medium := f.Classes["medium"].Steps; medium.Max != 0 {
		t.Errorf("what went straight waited %+v steps", medium)
	}
	if f.LightJobs != 2 || f.LightWait.P99 != 40*time.Millisecond {
		t.Errorf("light tenants have up to %d jobs and waited %+v", f.LightJobs, f.LightWait)
	}
}

func TestOrderHeadIsTakenWhereAllClassesWait(t *testing.T) {
	t.Parallel()
	play100 := func(pattern string, low int) []play {
		var plays []play
		for i, letter := range pattern {
			class := map[rune]admission.Priority{'H': "high", 'M': "medium", 'L': "low"}[letter]
			in := 1
			if class == "low" {
				in = low
			}
			plays = append(plays, play{tenant: "a", class: class, in: in, out: 10 + i})
		}
		return plays
	}
	pattern := strings.Repeat("HHHMML", 20)
	if head := figures(play100(pattern, 1)).OrderHead; head != pattern[:60] {
		t.Errorf("got %q", head)
	}
	// The low jobs come in at 39: the 30 dispatches before that say nothing about the pattern.
	if head := figures(play100(pattern, 39)).OrderHead; head != pattern[:60] {
		t.Errorf("got %q", head)
	}
	short := "HHHMMLHHHMML" + strings.Repeat("H", 80)
	if head := figures(play100(short, 1)).OrderHead; head != "HHHMMLHHHMM" && head != "HHHMMLHHHMML"[:len(head)] {
		t.Errorf("got %q", head)
	}
	if head := figures(play100("HHHHH", 1)).OrderHead; head != "" {
		t.Errorf("got %q with one class", head)
	}
}

func TestJobsThatMayStandBehindABreakerProveNothing(t *testing.T) {
	t.Parallel()
	l := New(30)
	for i := range 10 {
		play{tenant: "a", class: "high", in: 1, out: 10 + i}.write(l)
		play{tenant: "b", class: "medium", in: 1, out: 30 + i}.write(l)
		play{tenant: "c", class: "low", downstream: "ill", in: 1, out: 50 + i}.write(l)
	}
	l.Opened("ill", at(5))
	if head := l.Figures(admission.DefaultClasses(), equal).OrderHead; head != "" {
		t.Errorf("got %q", head)
	}
}

func TestFairnessComparesThoseWhoCompete(t *testing.T) {
	t.Parallel()
	turns := func(order string, rounds int, cost admission.Tokens) []play {
		var plays []play
		for i, letter := range strings.Repeat(order, rounds) {
			c := admission.Tokens(1)
			if letter == 'c' {
				c = cost
			}
			plays = append(plays, play{tenant: string(letter), class: "low", cost: c, in: 1, out: 10 + i})
		}
		return plays
	}
	f := figures(turns("abc", 40, 1)).Fairness
	if f.Compared != 3 || f.Jain < 0.999 || f.Class != "low" {
		t.Errorf("even service: %+v", f)
	}
	f = figures(turns("abc", 40, 4)).Fairness // shares 1:1:4
	if want := 36.0 / (3 * 18); f.Compared != 3 || math.Abs(f.Jain-want) > 0.01 {
		t.Errorf("uneven service: %+v, want %.3f", f, want)
	}
	if f = figures(turns("abc", 10, 1)).Fairness; f.Compared != 0 || f.Jain != 1 {
		t.Errorf("too few rounds: %+v", f)
	}
	// Each job comes when the one before is gone: nobody competes.
	var calm []play
	for i := range 100 {
		calm = append(calm, play{tenant: string(rune('a' + i%2)), class: "low", in: 10*i + 5, out: 10*i + 6})
	}
	if f = figures(calm).Fairness; f.Compared != 0 {
		t.Errorf("nobody competed: %+v", f)
	}
}

func TestABreakersStory(t *testing.T) {
	t.Parallel()
	l := New(10)
	play{tenant: "a", class: "high", downstream: "mail", in: 1, out: 5, fails: true}.write(l)
	play{tenant: "a", class: "high", downstream: "mail", in: 6}.write(l)                      // never started
	play{tenant: "a", class: "high", downstream: "mail", in: 7, out: 30}.write(l)             // held back until it closed
	play{tenant: "a", class: "high", downstream: "mail", in: 40, out: 41}.write(l)            // afterwards
	play{tenant: "a", class: "high", downstream: "web", in: 7, out: 30, fails: true}.write(l) // another's
	l.Opened("mail", at(10))
	l.HalfOpened("mail", at(15))
	l.Opened("mail", at(16))
	l.HalfOpened("mail", at(20))
	l.Closed("mail", at(25))
	l.Closed("web", at(25))
	breakers := l.Figures(admission.DefaultClasses(), equal).Breakers
	if len(breakers) != 1 {
		t.Fatalf("got %+v", breakers)
	}
	b := breakers[0]
	if b.Downstream != "mail" || b.Opened != 2 || b.HeldBack != 2 || b.Burnt != 1 {
		t.Errorf("got %+v", b)
	}
	if p := b.Periods[0]; !p.HalfOpened.Equal(at(15)) || !p.Closed.Equal(at(25)) {
		t.Errorf("got %+v", p)
	}
}

func TestEstimatesAreComparedWithWaits(t *testing.T) {
	t.Parallel()
	f := figures([]play{
		{tenant: "a", class: "high", in: 10, out: 20, estimate: 5 * time.Millisecond},  // half too short
		{tenant: "a", class: "high", in: 10, out: 30, estimate: 22 * time.Millisecond}, // a tenth too long
		{tenant: "a", class: "high", in: 10, out: 40, estimate: 90 * time.Millisecond}, // thrice
		{tenant: "a", class: "high", in: 10, out: 50, estimate: -1},
		{tenant: "a", class: "high", in: 10, out: 11, straight: true},
		{tenant: "a", class: "high", in: 10, estimate: time.Second},
	})
	if e := f.Estimate; e.Compared != 3 || e.Unknown != 1 || math.Abs(e.MedianError-0.5) > 1e-9 {
		t.Errorf("got %+v", e)
	}
}

func TestTokensAreReadAndOrdered(t *testing.T) {
	t.Parallel()
	a, err := ParseToken("1700000000000-2")
	if err != nil {
		t.Fatal(err)
	}
	b, err := ParseToken("1700000000000-10")
	if err != nil || a.Compare(b) >= 0 || b.Compare(a) <= 0 || a.Compare(a) != 0 {
		t.Errorf("%v against %v: %d, %v", a, b, a.Compare(b), err)
	}
	for _, bad := range []string{"", "12", "a-1", "1-b"} {
		if _, err := ParseToken(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
