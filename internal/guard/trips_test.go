package guard

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// tripBench is a guard of this process in a cgroup whose files the test writes: a gigabyte and one and a half processors. Its looks are a second apart.
type tripBench struct {
	*testing.T
	process *process
	guard   *Guard
	root    string
	now     time.Time
	spent   int // of the group, in seconds of processors
	told    []Change
}

func newTripBench(t *testing.T, config Config) *tripBench {
	t.Helper()
	b := &tripBench{T: t, process: newProcess(), root: t.TempDir(), now: time.Unix(1000, 0)}
	proc := t.TempDir()
	files(t, proc, map[string]string{"7/cgroup": "0::/jobs"})
	if err := os.Symlink("7", filepath.Join(proc, "self")); err != nil {
		t.Fatal(err)
	}
	files(t, b.root, map[string]string{"jobs/memory.max": "1073741824", "jobs/memory.stat": "inactive_file 0", "jobs/cpu.max": "150000 100000"})
	b.use(100, 0)
	b.process.cgroup = findCgroup(proc, b.root)
	var err error
	b.guard, err = New(config, Parts{Sampler: b.process, Changed: func(c Change) { b.told = append(b.told, c) }})
	if err != nil {
		t.Fatal(err)
	}
	b.guard.free = func() {}
	if _, err := b.process.Sample(b.now); err != nil { // CPU is what was spent since, by the clock of the test.
		t.Fatal(err)
	}
	return b
}

// use has the group hold so many megabytes, and have spent so many seconds of processors more.
func (b *tripBench) use(megabytes, seconds int) {
	b.Helper()
	b.spent += seconds
	files(b.T, b.root, map[string]string{"jobs/memory.current": strconv.Itoa(megabytes << 20), "jobs/cpu.stat": "usage_usec " + strconv.Itoa(b.spent*1_000_000)})
}

// look has the guard look after a time, and reports whether new work is kept away.
func (b *tripBench) look(after time.Duration) bool {
	b.Helper()
	b.now = b.now.Add(after)
	s, err := b.process.Sample(b.now)
	if err != nil {
		b.Fatal(err)
	}
	b.guard.look(b.now, s)
	return b.guard.throttled.Load()
}

// spin uses processors until /proc has heard of so many seconds of it, with goroutines that wait for each other.
func spin(t *testing.T, p *process, seconds float64) {
	t.Helper()
	for began := p.spent; ; {
		_, spent, err := p.tree(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if spent-began >= seconds {
			return
		}
		for range 1_000_000 {
			continue
		}
		var waiting sync.WaitGroup // The runtime takes the latency of one goroutine in eight.
		for range 100 {
			waiting.Go(func() {})
		}
		waiting.Wait()
	}
}

// TestWhatAGuardMeasuresTripsIt, alone, and lets work in again when it is over: the memory and the processors of a cgroup by its files, the process's processors
// by /proc and how long goroutines waited by the runtime.
func TestWhatAGuardMeasuresTripsIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind        Kind
		config      Config
		press, ease func(b *tripBench)
		after       time.Duration // of the look that finds it eased
	}{
		{CgroupMemory, Config{MaxCgroupMemory: .5}, func(b *tripBench) { b.use(600, 0) }, func(b *tripBench) { b.use(100, 0) }, time.Second},
		{CgroupCPU, Config{MaxCgroupCPU: .9}, func(b *tripBench) { b.use(100, 2) }, func(b *tripBench) { b.use(100, 0) }, time.Second},
		{CPU, Config{MaxCPU: .1}, func(b *tripBench) { spin(b.T, b.process, .2) }, nil, time.Hour},
		{SchedLatency, Config{MaxSchedLatency: 1}, func(b *tripBench) { spin(b.T, b.process, .05) }, nil, 0}, // Other tests keep goroutines waiting.
	} {
		t.Run(string(c.kind), func(t *testing.T) {
			t.Parallel()
			b := newTripBench(t, c.config)
			if c.kind != SchedLatency && b.look(time.Hour) {
				t.Fatalf("throttled before it: %+v", b.told)
			}
			c.press(b)
			if !b.look(time.Second) {
				t.Fatalf("not throttled: %+v", b.told)
			}
			if last := b.told[len(b.told)-1]; last.Kind != c.kind || last.To != Violation {
				t.Errorf("told %+v", last)
			}
			if c.after == 0 {
				return
			}
			if c.ease != nil {
				c.ease(b)
			}
			if b.look(c.after) {
				t.Errorf("throttled after it: %+v", b.told)
			}
			if slices.ContainsFunc(b.told, func(told Change) bool { return told.Kind != c.kind }) {
				t.Errorf("told %+v", b.told)
			}
		})
	}
}
