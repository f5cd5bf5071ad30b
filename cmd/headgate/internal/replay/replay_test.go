package replay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/trace"
	"github.com/headgate/headgate/policy"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// generate returns a trace of the shape of a real one: few heavy tenants and many light ones, some failures, one
// downstream that always fails, and a row in a hundred that is bad.
func generate(t *testing.T, rows int) *trace.Trace {
	t.Helper()
	random := rand.New(rand.NewPCG(7, 7))
	var text strings.Builder
	text.WriteString("gmt_create,predict_type,predict_status,exec_time_seconds,groupId,prompt_length,negative_prompt_length," +
		"num_images_per_prompt,num_inference_steps,checkpoint_model_version_id\n")
	begin := time.Date(2024, 11, 15, 0, 0, 0, 0, time.UTC)
	for i := range rows {
		tenant := int(float64(rows/5) * random.Float64() * random.Float64() * random.Float64() * random.Float64())
		model, status := fmt.Sprintf("M%d", random.IntN(5)), "SUCCEED"
		if model == "M4" || random.IntN(50) == 0 {
			status = "FAILED"
		}
		if i%100 == 99 {
			model = ""
		}
		fmt.Fprintf(&text, "%s,TYPE_%d,%s,%d,G%d,%d,,%d,30,%s\n", begin.Add(time.Duration(10*i)*time.Second).Format(time.DateTime),
			i%2, status, 5+random.IntN(60), tenant, random.IntN(300), 1+random.IntN(4), model)
	}
	read, err := trace.Read(strings.NewReader(text.String()), trace.Columns{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// play replays and checks what must hold of every replay.
func play(t *testing.T, config Config) report.Summary {
	t.Helper()
	config.Redis = redistest.Shared(t).URL()
	run, _, err := Run(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	s := report.NewSummary(run)
	refused := 0
	for _, n := range s.Refused {
		refused += n
	}
	if s.Submitted != s.Admitted+s.Duplicates+refused || s.Rows != s.Submitted+s.BadRows+s.ExcludedRows {
		t.Errorf("rows and submitted do not add up: %+v", s)
	}
	if !s.Conserved || int64(s.Admitted) != s.Completed+s.Expired+s.Dropped+s.Cancelled+s.Dead+s.Waiting {
		t.Errorf("admitted does not add up: %+v", s)
	}
	return s
}

func TestEveryRowIsAccountedFor(t *testing.T) {
	t.Parallel()
	read := generate(t, 2000)
	s := play(t, Config{Trace: read, Speed: 20000, Concurrency: 4, Policy: policy.Unlimited()})
	if s.Rows != 2000 || s.BadRows != 20 || s.Admitted != 1980 || s.Interrupted {
		t.Errorf("got %+v", s)
	}
	ill := s.Breakers[0]
	if ill.Downstream != "M4" || ill.State != "open" || ill.Opened != 1 || int64(ill.HeldBack) < s.Waiting {
		t.Errorf("M4's breaker: %+v with %d jobs waiting", ill, s.Waiting)
	}
	if held := s.Downstreams["M4"].Dispatched; held > 20 || s.Waiting < 300 {
		t.Errorf("%d jobs of M4 ran and %d wait", held, s.Waiting)
	}
	dispatched := 0
	for _, class := range admission.DefaultClasses() {
		dispatched += s.Classes[class.Name].Dispatched
	}
	if int64(dispatched) != s.Completed+s.Dead || s.FailedAttempts != int(s.Dead) {
		t.Errorf("%d jobs started, %d attempts failed: %+v", dispatched, s.FailedAttempts, s)
	}
}

func TestAnIllDownstreamDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	read := generate(t, 1500)
	rest, gone := read.Without("M4")
	// Everything is in before the worker starts, so both runs dispatch by the same rules from the same room, and one slot
	// makes the order exact.
	with := play(t, Config{Trace: read, Speed: 1e9, Concurrency: 1, Preload: true, Policy: policy.Unlimited()})
	without := play(t, Config{Trace: rest, Excluded: gone, Speed: 1e9, Concurrency: 1, Preload: true, Policy: policy.Unlimited()})
	a, b := with.Healthy, without.Healthy
	if a.Dispatched != b.Dispatched {
		t.Fatalf("%d healthy jobs ran with M4, %d without", a.Dispatched, b.Dispatched)
	}
	ran := with.Downstreams["M4"].Dispatched
	t.Logf("M4 ran %d times; steps with M4 %+v, without %+v", ran, a, b)
	if a.OwnStepsP50 > b.OwnStepsP50 || a.OwnStepsP99 > b.OwnStepsP99 || a.OwnStepsMax > b.OwnStepsMax {
		t.Errorf("healthy jobs waited longer among themselves with M4: %+v, without: %+v", a, b)
	}
	out := ran + 1 // What is on its way to the only slot when the breaker opens has taken its step and goes back.
	if a.WaitStepsP50 > b.WaitStepsP50+out || a.WaitStepsP99 > b.WaitStepsP99+out {
		t.Errorf("healthy jobs waited for more than M4's %d dispatches: %+v, without: %+v", out, a, b)
	}
	if head := with.OrderHead; !strings.Contains(strings.Repeat("HHHMML", 12), head) || len(head) != 60 {
		t.Errorf("order %q", head)
	}
	if with.Tenants.JainCompared < 2 || with.Tenants.Jain < 0.97 {
		t.Errorf("fairness %+v", with.Tenants)
	}
}

func TestARowThatFailsMayHaveMoreAttempts(t *testing.T) {
	t.Parallel()
	read, _ := generate(t, 300).Without("M4")
	s := play(t, Config{Trace: read, Excluded: 0, Speed: 1e6, MaxAttempts: 3, Policy: policy.Unlimited(), Concurrency: 32})
	if s.Dead == 0 || s.FailedAttempts < 2*int(s.Dead) {
		t.Errorf("%d dead letters after %d failed attempts", s.Dead, s.FailedAttempts)
	}
}

func TestAPolicyRefuses(t *testing.T) {
	t.Parallel()
	limits := policy.Unlimited()
	limits.Version = 41 // that of another deployment
	limits.Global = admission.Limit{Tokens: 1, Per: time.Hour, Burst: 50}
	read, _ := generate(t, 200).Without("M4")
	s := play(t, Config{Trace: read, Speed: 1e9, Policy: limits})
	if s.Refused[admission.ReasonLimited] < 50 || s.Admitted < 10 {
		t.Errorf("got %+v", s)
	}
}

// paper is progress that somebody reads.
type paper func(line string)

func (p paper) Write(line []byte) (int, error) {
	p(string(line))
	return len(line), nil
}

func TestAnInterruptedReplayReportsWhatItHasAndCleansUp(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	if err := client.Set(t.Context(), "somebody-else", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	progress := paper(func(line string) {
		if !strings.Contains(line, " 0 admitted") {
			cancel()
		}
	})
	run, _, err := Run(ctx, Config{Trace: generate(t, 200), Speed: 100, Policy: policy.Unlimited(), Redis: server.URL(), Progress: progress})
	if err != nil {
		t.Fatal(err)
	}
	s := report.NewSummary(run)
	if !s.Interrupted || !s.Conserved || s.Admitted < 1 || s.Rows <= s.Submitted {
		t.Errorf("got %+v", s)
	}
	if keys, err := client.Keys(t.Context(), "*").Result(); err != nil || len(keys) != 1 {
		t.Errorf("keys left: %v, %v", keys, err)
	}
}

func TestBadSettingsAreReportedTogether(t *testing.T) {
	t.Parallel()
	err := Config{Speed: 0.5, Concurrency: 10001, MaxAttempts: 256}.Validate()
	want := "invalid --speed 0.5: allowed is 1 to 1e9\ninvalid --concurrency 10001: allowed is 1 to 10000 slots\n" +
		"invalid --max-attempts 256: allowed is 1 to 255 runs"
	if err == nil || err.Error() != want || !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}
