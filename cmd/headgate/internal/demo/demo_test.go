package demo

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/ledger"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/cmd/headgate/internal/stage"
	"github.com/headgate/headgate/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestTheStoryIsTold(t *testing.T) {
	t.Parallel()
	var notes, out bytes.Buffer
	outcome, err := Run(t.Context(), Config{Duration: 3 * time.Second, Redis: redistest.Shared(t).URL(), Progress: &notes})
	if err != nil {
		t.Fatal(err)
	}
	outcome.Write(&out)
	t.Logf("\n%s", out.String())
	s := report.NewSummary(outcome.Run)
	if !s.Conserved || s.Interrupted || s.Submitted != s.Rows || s.Completed == 0 {
		t.Errorf("the books: %+v", s)
	}
	if s.Refused[admission.ReasonLimited] == 0 || outcome.tenant(crawler).Refused < outcome.tenant(crawler).Admitted {
		t.Errorf("the flood was not refused: %+v", outcome.tenant(crawler))
	}
	if bakers := outcome.tenant(bakery); bakers.Refused > 0 {
		t.Errorf("the bakery was refused: %+v", bakers)
	}
	// A machine that halts while mail is dead has no failed call to open a breaker for.
	calls := 0
	for _, started := range outcome.timelines[bakery.tenant].Started[mailDies*slicesPerPart : mailAlive*slicesPerPart] {
		calls += started
	}
	switch b := outcome.mail(); {
	case b.Opened > 0 && b.HeldBack > 0 && b.Burnt > 0:
	case calls < 12: // Six that fail open it.
		t.Logf("%d jobs called mail while it was dead", calls)
	default:
		t.Errorf("%d jobs called mail while it was dead, and its breaker: %+v", calls, b)
	}
	for _, want := range []string{"THE FLOOD", "URGENT WORK", "THE BREAKER", "THE BOOKS", "clinic served", "no job was lost", "scope crawler"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in the summary", want)
		}
	}
	if !strings.Contains(notes.String(), "crawler") {
		t.Errorf("no progress: %q", notes.String())
	}
}

// paper is progress that somebody reads.
type paper func(line string)

func (p paper) Write(line []byte) (int, error) {
	p(string(line))
	return len(line), nil
}

func TestAnInterruptedStoryIsReported(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun := regexp.MustCompile(`[1-9]\d* asked`)
	progress := paper(func(line string) {
		if begun.MatchString(line) {
			cancel()
		}
	})
	outcome, err := Run(ctx, Config{Duration: time.Minute, Redis: redistest.Shared(t).URL(), Progress: progress})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	outcome.Write(&out)
	if s := report.NewSummary(outcome.Run); !s.Interrupted || !s.Conserved || s.Submitted == 0 {
		t.Errorf("got %+v", s)
	}
	if !strings.Contains(out.String(), "had not died yet") || !strings.Contains(out.String(), "THE FLOOD    had not begun") {
		t.Errorf("got %s", out.String())
	}
}

// TestTheSummarySpeaksOfWhatHappened tells a story that was interrupted before mail died, and drained until after.
func TestTheSummarySpeaksOfWhatHappened(t *testing.T) {
	t.Parallel()
	s := newScript(20 * time.Second)
	tell := func(told time.Duration) string {
		var out bytes.Buffer
		o := &Outcome{Run: report.Run{Wall: 6500 * time.Millisecond, Interrupted: true}, script: s, told: told, timelines: map[string]ledger.Timeline{}}
		for _, a := range cast {
			o.timelines[a.tenant] = ledger.Timeline{Asked: make([]int, 13), Started: make([]int, 13)}
		}
		o.Write(&out)
		return strings.ReplaceAll(out.String(), "! mail dead", "") // That is the picture's legend.
	}
	for _, row := range []struct {
		told        time.Duration
		said, never []string
	}{
		{
			time.Second,
			[]string{"interrupted after 1.0 of 20:", "THE FLOOD    had not begun", "mail had not died yet"},
			[]string{"mail died", "beside it", "!"},
		},
		{
			4900 * time.Millisecond,
			[]string{"interrupted after 4.9 of 20:", "beside it.", "mail had not died yet"},
			[]string{"mail died", "had not begun", "!"},
		},
		{
			6 * time.Second,
			[]string{"until mail died", "THE BREAKER  mail died at 5.0 s", "!!!"},
			[]string{"not died yet", "mail was alive"},
		},
	} {
		text := tell(row.told)
		for _, want := range row.said {
			if !strings.Contains(text, want) {
				t.Errorf("after %s it does not say %q:\n%s", row.told, want, text)
			}
		}
		for _, lie := range row.never {
			if strings.Contains(text, lie) {
				t.Errorf("after %s it says %q:\n%s", row.told, lie, text)
			}
		}
	}
}

func TestNothingHappensAfterAnInterrupt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	d := &demo{script: newScript(20 * time.Second), start: time.Now().Add(-4 * time.Second)}
	cancel()
	d.stopClock(ctx, t.Context())
	d.start = d.start.Add(-2 * time.Second) // The drain takes two seconds.
	if err := d.handle(t.Context(), stage.Task{Job: bakery.job()}); err != nil || d.elapsed() >= 5*time.Second {
		t.Errorf("after %s of the story mail said %v", d.elapsed(), err)
	}
}

func TestTheScript(t *testing.T) {
	t.Parallel()
	s := newScript(20 * time.Second)
	if n := s.due(crawler, time.Minute); n != 9*10+9*300 {
		t.Errorf("the crawler sends %d jobs", n)
	}
	if n := s.due(crawler, 3*time.Second); n != 2*10+300 {
		t.Errorf("the crawler has sent %d jobs after 3 s", n)
	}
	if n := s.due(clinic, 10*time.Second); n != 150 {
		t.Errorf("the clinic has sent %d jobs after 10 s", n)
	}
	if s.mailDead(4999*time.Millisecond) || !s.mailDead(5*time.Second) || s.mailDead(9*time.Second) {
		t.Error("mail dies or recovers at the wrong time")
	}
	for _, bad := range []time.Duration{-1, time.Second, 2 * time.Minute} {
		if err := (Config{Duration: bad}).Validate(); !errors.Is(err, admission.ErrInvalid) {
			t.Errorf("a duration of %s gave %v", bad, err)
		}
	}
}
