package guard

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/headgate/headgate/admission"
)

// Sample is what a process used at a time, or since the sample before.
type Sample struct {
	// Memory is resident, in bytes; CPU is in cores. Both are of the process and its descendants.
	Memory int64
	CPU    float64
	// CgroupMemory and CgroupCPU are of the whole cgroup, in bytes and cores; their limits are zero for none.
	CgroupMemory, CgroupMemoryLimit int64
	CgroupCPU, CgroupCPULimit       float64
	// MachineMemory is all that the machine has, in bytes; zero where that cannot be read.
	MachineMemory int64
	Goroutines    int
	// SchedLatency is how long goroutines waited for a processor, all but one in a hundred.
	SchedLatency time.Duration
}

// Sampler measures. It is called by one goroutine at a time.
type Sampler interface {
	Sample(now time.Time) (Sample, error)
}

// Parts returns which part of its processors and of its memory is in use, 1 for all: of the cgroup where that has a limit, else by the
// process and its descendants of the machine. Negative is not known.
func (s Sample) Parts() (cpu, memory float64) {
	cpu, memory = s.CPU/float64(runtime.NumCPU()), -1
	if s.CgroupCPULimit > 0 {
		cpu = s.CgroupCPU / s.CgroupCPULimit
	}
	switch {
	case s.CgroupMemoryLimit > 0:
		memory = float64(s.CgroupMemory) / float64(s.CgroupMemoryLimit)
	case s.MachineMemory > 0:
		memory = float64(s.Memory) / float64(s.MachineMemory)
	}
	return cpu, memory
}

// has reports what is limited and not there to be measured.
func (s Sample) has(c Config) error {
	var bad []error
	if c.MaxCgroupMemory > 0 && s.CgroupMemoryLimit == 0 {
		bad = append(bad, &admission.FieldError{Field: "MaxCgroupMemory", Value: strconv.FormatFloat(c.MaxCgroupMemory, 'g', -1, 64), Allowed: "0 here: the cgroup of this process has no limit of memory that can be read"})
	}
	if c.MaxCgroupCPU > 0 && s.CgroupCPULimit == 0 {
		bad = append(bad, &admission.FieldError{Field: "MaxCgroupCPU", Value: strconv.FormatFloat(c.MaxCgroupCPU, 'g', -1, 64), Allowed: "0 here: the cgroup of this process has no quota of processors that can be read"})
	}
	return errors.Join(bad...)
}

// readings returns what is limited.
func (s Sample) readings(c Config) (all []Reading) {
	add := func(kind Kind, value, limit float64) {
		if limit > 0 {
			all = append(all, Reading{Kind: kind, Value: value, Limit: limit})
		}
	}
	add(Memory, float64(s.Memory), float64(c.MaxMemory))
	add(CgroupMemory, float64(s.CgroupMemory), c.MaxCgroupMemory*float64(s.CgroupMemoryLimit))
	add(CPU, s.CPU, c.MaxCPU)
	add(CgroupCPU, s.CgroupCPU, c.MaxCgroupCPU*s.CgroupCPULimit)
	add(Goroutines, float64(s.Goroutines), float64(c.MaxGoroutines))
	add(SchedLatency, s.SchedLatency.Seconds(), c.MaxSchedLatency.Seconds())
	return all
}

// max returns the most of what the process used in either.
func (s Sample) max(other Sample) Sample {
	return Sample{
		Memory: max(s.Memory, other.Memory), CPU: max(s.CPU, other.CPU), Goroutines: max(s.Goroutines, other.Goroutines),
		SchedLatency: max(s.SchedLatency, other.SchedLatency),
	}
}

// process measures this process, by /proc, its cgroup and the runtime.
type process struct {
	proc    string
	cgroup  cgroup
	machine int64 // its memory in bytes
	before  time.Time
	spent   float64 // seconds of processors
	waiting []metrics.Sample
	waited  []uint64 // the histogram of the sample before
}

const latencies = "/sched/latencies:seconds"

// NewSampler returns a Sampler of this process.
func NewSampler() Sampler { return newProcess() }

func newProcess() *process {
	return &process{
		proc: procfs.DefaultMountPoint, cgroup: findCgroup(procfs.DefaultMountPoint, "/sys/fs/cgroup"), machine: machineMemory(procfs.DefaultMountPoint),
		waiting: []metrics.Sample{{Name: latencies}},
	}
}

// machineMemory returns the memory of the machine in bytes, 0 where that cannot be read.
func machineMemory(proc string) int64 {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return 0
	}
	info, err := fs.Meminfo()
	if err != nil || info.MemTotalBytes == nil {
		return 0
	}
	return int64(*info.MemTotalBytes) //nolint:gosec // No machine has as much.
}

// Sample measures. CPU and waits are those since the sample before; the first has none.
func (p *process) Sample(now time.Time) (Sample, error) {
	memory, spent, err := p.tree(os.Getpid())
	if err != nil {
		return Sample{}, err
	}
	s := Sample{Memory: memory, MachineMemory: p.machine, Goroutines: runtime.NumGoroutine(), SchedLatency: p.latency()}
	passed := now.Sub(p.before).Seconds()
	first := p.before.IsZero() || passed <= 0
	if !first {
		s.CPU = max(spent-p.spent, 0) / passed // What a child of a child used is lost if nobody waits for that.
	}
	p.cgroup.sample(&s, passed, first)
	p.before, p.spent = now, spent
	return s, nil
}

// tree returns the memory of a process and its descendants, and the time of processors that these and all that were waited for have
// spent. A descendant that ends meanwhile is left out.
func (p *process) tree(pid int) (memory int64, spent float64, err error) {
	fs, err := procfs.NewFS(p.proc)
	if err != nil {
		return 0, 0, err
	}
	line := []int{pid}
	for i := 0; i < len(line); i++ {
		proc, err := fs.Proc(line[i])
		var stat procfs.ProcStat
		if err == nil {
			stat, err = proc.Stat()
		}
		if err != nil && i == 0 {
			return 0, 0, err
		}
		if err != nil {
			continue
		}
		memory += int64(stat.ResidentMemory())
		spent += stat.CPUTime() + float64(stat.CUTime+stat.CSTime)/ticksPerSecond
		line = append(line, p.children(line[i])...)
	}
	return memory, spent, nil
}

// ticksPerSecond is that of /proc, the same on all machines.
const ticksPerSecond = 100

// children returns the processes that the threads of one have started. A kernel that does not tell has none.
func (p *process) children(pid int) (all []int) {
	files, _ := filepath.Glob(filepath.Join(p.proc, strconv.Itoa(pid), "task", "*", "children")) // The pattern is a good one.
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// latency returns the upper end of the bucket that the 99th percentile since the sample before is in.
func (p *process) latency() time.Duration {
	metrics.Read(p.waiting)
	if p.waiting[0].Value.Kind() != metrics.KindFloat64Histogram {
		return 0
	}
	h := p.waiting[0].Value.Float64Histogram()
	since := make([]uint64, len(h.Counts))
	for i, n := range h.Counts {
		since[i] = n
		if p.waited != nil {
			since[i] -= p.waited[i]
		}
	}
	p.waited = append(p.waited[:0], h.Counts...)
	return time.Duration(percentile99(since, h.Buckets) * float64(time.Second))
}

// percentile99 returns the upper end of the bucket below which 99 in 100 are, in the unit of the buckets; that of the last is
// infinite, so it has its lower end.
func percentile99(counts []uint64, buckets []float64) float64 {
	total := uint64(0)
	for _, n := range counts {
		total += n
	}
	seen := uint64(0)
	for i, n := range counts {
		if seen += n; total > 0 && seen*100 >= total*99 {
			if math.IsInf(buckets[i+1], 1) {
				return buckets[i]
			}
			return buckets[i+1]
		}
	}
	return 0
}

// number reads a file that holds a number, or a word for none.
func number(file string) (n int64, ok bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// field reads the line of a file that begins with a name.
func field(file, name string) (n int64, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, name)
}
