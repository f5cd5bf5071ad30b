package guard

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// eater is set in the process that a test starts as its child.
const eater = "HEADGATE_TEST_EATER"

// eaten is how much memory it takes, in bytes.
const eaten = 64 << 20

func TestMain(m *testing.M) {
	if os.Getenv(eater) != "" {
		eat()
		return
	}
	os.Exit(m.Run())
}

// eat takes memory, says so, and keeps it until its standard input ends.
func eat() {
	memory := make([]byte, eaten)
	for i := range memory {
		memory[i] = byte(i)
	}
	_, _ = os.Stdout.WriteString("full")
	_, _ = os.Stdin.Read(memory[:1])
	if memory[1] != 1 { // It is used to the end.
		os.Exit(1)
	}
}

// TestRing reproduces the example of the paper, whose window has 40 s, and the edges of one of 60.
func TestRing(t *testing.T) {
	t.Parallel()
	at := func(second int64) time.Time { return time.Unix(1_700_000_000+second, 0) }
	r := newRing(40)
	for i, n := range []int{5, 3, 8, 12, 6, 4, 2} {
		r.add(at(int64(i*10)), n)
	}
	if got := r.count(at(69)); got != 12+6+4+2 {
		t.Errorf("just before 70 s there are %d, want 24", got)
	}
	r.add(at(70), 10)
	if got := r.count(at(79)); got != 6+4+2+10 {
		t.Errorf("just before 80 s there are %d, want 22", got)
	}

	r = newRing(window)
	r.add(at(0), 7)
	for _, step := range []struct {
		at   int64
		want int
	}{{59, 7}, {30, 7}, {60, 0}, {1_000_000, 0}} { // 30 is a clock that was set back.
		if got := r.count(at(step.at)); got != step.want {
			t.Errorf("at %d s there are %d, want %d", step.at, got, step.want)
		}
	}
}

// TestAClockThatWasSetBackEndsNoMinute: what was counted before goes a minute after it, and not when the clock is as late as it was.
func TestAClockThatWasSetBackEndsNoMinute(t *testing.T) {
	t.Parallel()
	at := func(second int64) time.Time { return time.Unix(1_700_000_000+second, 0) }
	r := newRing(window)
	r.add(at(0), 7)
	r.add(at(-3600), 2)
	r.add(at(-3601), 1) // Who asked for the time first may count last.
	for _, step := range []struct {
		at   int64
		want int
	}{{-3600, 10}, {-3600 + 59, 10}, {-3600 + 60, 0}} {
		if got := r.count(at(step.at)); got != step.want {
			t.Errorf("at %d s there are %d, want %d", step.at, got, step.want)
		}
	}
}

// TestAThrottledGuardSleeps counts how often it looks: once a second, however many are refused meanwhile, and never again after its
// end.
func TestAThrottledGuardSleeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sampler := &fixed{sample: Sample{Memory: 2 << 20}}
		var told atomic.Int64
		g, err := New(Config{MaxMemory: 1 << 20, MaxRequestsPerMinute: 10}, Parts{Sampler: sampler, Throttled: func(bool) { told.Add(1) }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			g.Run(ctx)
			close(done)
		}()
		time.Sleep(time.Hour + time.Second) //nolint:forbidigo // in a bubble
		for range 1000 {
			if wait, ok := g.TryBegin(); ok || wait != DefaultViolationDelay {
				t.Fatalf("a request begins: %t, or waits %s", ok, wait)
			}
			g.Count(1)
		}
		synctest.Wait()
		// A second and up to a tenth more or less, at random: the mean of an hour is a second.
		if want := int(time.Hour / DefaultViolationDelay); sampler.asked < want*98/100 || sampler.asked > want*102/100 || told.Load() != 1 {
			t.Errorf("%d samples in an hour, want about %d; throttled was told %d times", sampler.asked, want, told.Load())
		}
		stop()
		<-done
	})
}

// TestRateIsExactBetweenLooks: Run is not even running.
func TestRateIsExactBetweenLooks(t *testing.T) {
	t.Parallel()
	g, err := New(Config{MaxRequestsPerMinute: 10}, Parts{Sampler: &fixed{}})
	if err != nil {
		t.Fatal(err)
	}
	begun := 0
	for range 100 {
		if g.tryCountAt(time.Unix(1_700_000_000, 0)) {
			begun++
		}
	}
	if begun != 10 {
		t.Errorf("%d begin, want 10", begun)
	}
}

func TestASamplerThatFailsIsToldOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sampler := &fixed{sample: Sample{Memory: 2 << 20}}
		var said strings.Builder
		g, err := New(Config{MaxMemory: 1 << 20}, Parts{Sampler: sampler, Logger: zerolog.New(&said)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go g.Run(ctx)
		time.Sleep(6 * time.Second) //nolint:forbidigo // in a bubble
		synctest.Wait()
		sampler.fail(errors.New("no such file"))
		time.Sleep(time.Minute) //nolint:forbidigo // in a bubble
		synctest.Wait()
		if _, ok := g.TryBegin(); ok {
			t.Error("a guard that cannot see lets new work in again")
		}
		sampler.fail(nil)
		time.Sleep(time.Minute) //nolint:forbidigo // in a bubble
		synctest.Wait()
		if got := strings.Count(said.String(), "cannot be measured"); got != 1 {
			t.Errorf("told %d times", got)
		}
		if !strings.Contains(said.String(), "can be measured again") {
			t.Error("its end is not told")
		}
	})
}

func TestBadConfigsAreToldAtOnce(t *testing.T) {
	t.Parallel()
	config := Config{
		MaxMemory: -5, MaxCgroupMemory: 1.5, MaxCPU: -1, MaxCgroupCPU: -0.1, MaxGoroutines: -2, MaxSchedLatency: time.Hour, MaxRequestsPerMinute: -3,
		Interval: time.Millisecond, WarnAt: 2, Delays: Delays{Warn: -time.Second, Connections: time.Millisecond, Violation: time.Minute},
	}
	_, err := New(config, Parts{Sampler: &fixed{}})
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{
		"MaxMemory -5: allowed is 0 to 1125899906842624 bytes (1 PiB)", "MaxCgroupMemory 1.5: allowed is 0 to 1",
		"MaxCPU -1: allowed is 0 to 4096 cores", "MaxCgroupCPU -0.1", "MaxGoroutines -2", "MaxSchedLatency 1h0m0s", "MaxRequestsPerMinute -3",
		"Interval 1ms", "WarnAt 2: allowed is 0.1 to 1", "Delays.Warn -1s: allowed is 0s to 10s", "Delays.Connections 1ms: allowed is 10ms to 10s",
		"Delays.Violation 1m0s: allowed is 10ms to 10s",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing says %q:\n%v", want, err)
		}
	}
}

func TestWithoutALimitThereIsNoGuard(t *testing.T) { //nolint:paralleltest // It counts allocations.
	g, err := New(Config{Interval: time.Second, WarnAt: 0.5, Delays: Delays{Warn: time.Second, Violation: time.Second}}, Parts{})
	if g != nil || err != nil {
		t.Fatalf("%v, %v", g, err)
	}
	allocations := testing.AllocsPerRun(100, func() {
		g.Count(1)
		if _, ok := g.TryBegin(); !ok {
			t.Error("nothing may begin")
		}
		g.Hold(t.Context())
	})
	if allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
	g.Run(t.Context())
}

func TestALimitOfACgroupWithoutOneIsAnError(t *testing.T) {
	t.Parallel()
	_, err := New(Config{MaxCgroupMemory: 0.9, MaxCgroupCPU: 0.9}, Parts{Sampler: &fixed{}})
	if err == nil || !strings.Contains(err.Error(), "MaxCgroupMemory 0.9: allowed is 0 here") || !strings.Contains(err.Error(), "MaxCgroupCPU 0.9: allowed is 0 here") {
		t.Error(err)
	}
}

// TestMemoryOfChildrenCounts has a child that really takes memory, and lets it go.
func TestMemoryOfChildrenCounts(t *testing.T) {
	t.Parallel()
	p := newProcess()
	sample := func() int64 {
		s, err := p.Sample(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return s.Memory
	}
	before := sample()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), eater+"=1")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err = out.Read(make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	with := sample()
	if err = errors.Join(in.Close(), child.Wait()); err != nil {
		t.Fatal(err)
	}
	if after := sample(); with-before < eaten*9/10 || with-after < eaten*9/10 {
		t.Errorf("before %d, with the child %d, after it %d", before>>20, with>>20, after>>20)
	}
}

// TestSpinningCounts spins until /proc has heard of 200 ms of it, and asks for what that is of a second.
func TestSpinningCounts(t *testing.T) {
	t.Parallel()
	p := newProcess()
	if _, err := p.Sample(time.Unix(0, 1)); err != nil {
		t.Fatal(err)
	}
	spin(t, p, 0.2)
	s, err := p.Sample(time.Unix(1, 1)) // As if a second had passed.
	if err != nil || s.CPU < 0.2 || s.CPU > 10 || s.Goroutines == 0 || s.SchedLatency <= 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	inf := func() float64 { var zero float64; return 1 / zero }()
	buckets := []float64{0, 1, 2, 4, inf}
	for _, c := range []struct {
		counts []uint64
		want   float64
	}{
		{[]uint64{0, 0, 0, 0}, 0}, {[]uint64{5, 0, 0, 0}, 1}, {[]uint64{99, 1, 0, 0}, 1}, {[]uint64{98, 2, 0, 0}, 2}, {[]uint64{0, 0, 0, 1}, 4},
	} {
		if got := percentile99(c.counts, buckets); got != c.want {
			t.Errorf("%v: %v, want %v", c.counts, got, c.want)
		}
	}
}

// files writes a tree of files below a folder.
func files(t *testing.T, folder string, texts map[string]string) {
	t.Helper()
	for name, text := range texts {
		name = filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCgroups reads groups of both versions, where they are and as a container sees them.
func TestCgroups(t *testing.T) {
	t.Parallel()
	const gigabyte = 1 << 30
	second := map[string]string{"memory.max": "1073741824", "memory.current": "900000000", "memory.stat": "anon 1\ninactive_file 100000000\n", "cpu.max": "150000 100000", "cpu.stat": "usage_usec 3000000\nuser_usec 1"}
	within := func(folder string, texts map[string]string) map[string]string {
		moved := map[string]string{}
		for name, text := range texts {
			moved[filepath.Join(folder, name)] = text
		}
		return moved
	}
	both := func(of ...map[string]string) map[string]string {
		all := map[string]string{}
		for _, one := range of {
			maps.Copy(all, one)
		}
		return all
	}
	first := both(
		within("memory/jobs", map[string]string{"memory.limit_in_bytes": "1073741824", "memory.usage_in_bytes": "900000000", "memory.stat": "total_inactive_file 100000000"}),
		within("cpu/jobs", map[string]string{"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000"}),
		within("cpuacct/jobs", map[string]string{"cpuacct.usage": "3000000000"}),
	)
	free := map[string]string{"memory.max": "max", "memory.current": "5", "cpu.max": "max 100000", "cpu.stat": "usage_usec 1"}
	for name, c := range map[string]struct {
		groups string
		files  map[string]string
		none   bool
	}{
		"second version":           {groups: "0::/jobs", files: within("jobs", second)},
		"the limit is above":       {groups: "0::/jobs/one", files: both(within("jobs/one", free), within("jobs", second))},
		"mounted as the top":       {groups: "0::/docker/abc", files: second},
		"first version":            {groups: "4:memory:/jobs\n2:cpu,cpuacct:/jobs\n0::/", files: first},
		"no limit":                 {groups: "0::/jobs", files: within("jobs", free), none: true},
		"first version, no limit":  {groups: "4:memory:/jobs", files: within("memory/jobs", map[string]string{"memory.limit_in_bytes": "9223372036854771712"}), none: true},
		"nothing can be read":      {groups: "0::/jobs", none: true},
		"first version, no quota ": {groups: "2:cpu,cpuacct:/", files: within("cpu", map[string]string{"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}), none: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proc, root := t.TempDir(), t.TempDir()
			files(t, proc, map[string]string{"7/cgroup": c.groups})
			if err := os.Symlink("7", filepath.Join(proc, "self")); err != nil && !errors.Is(err, fs.ErrExist) {
				t.Fatal(err)
			}
			files(t, root, c.files)
			group := findCgroup(proc, root)
			var s Sample
			group.sample(&s, 0, true)
			group.spent -= 1.2 // As if it had used 1.2 s more since.
			group.sample(&s, 2, false)
			want := Sample{CgroupMemory: 800_000_000, CgroupMemoryLimit: gigabyte, CgroupCPU: 0.6, CgroupCPULimit: 1.5}
			if c.none {
				want = Sample{}
			}
			if s.CgroupCPU > 0.59 && s.CgroupCPU < 0.61 {
				s.CgroupCPU = 0.6
			}
			if s != want {
				t.Errorf("%+v, want %+v", s, want)
			}
		})
	}
}
