package guard

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// cgroup is where the files of the groups are that limit this process: for each resource the nearest that has a limit, the group
// of the process or one above. The files are those of docs.kernel.org: admin-guide/cgroup-v2 and admin-guide/cgroup-v1.
type cgroup struct {
	memory, cpu resource
	// spent is what the group had used at the sample before, in seconds of processors.
	spent float64
}

// resource is a directory and which version its files are; no directory is no limit. spent is the file with the time of processors.
type resource struct {
	folder, spent string
	second        bool
}

// findCgroup looks for the groups of this process below root, by what proc says. What cannot be read is no limit.
func findCgroup(proc, root string) (found cgroup) {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return found
	}
	self, err := fs.Self()
	if err != nil {
		return found
	}
	groups, err := self.Cgroups()
	if err != nil {
		return found
	}
	for _, g := range groups {
		for _, top := range tops(root, g) {
			second := g.HierarchyID == 0
			if found.memory.folder == "" {
				folder := nearest(top, g.Path, func(folder string) bool { return memoryLimit(folder, second) > 0 })
				found.memory = resource{folder: folder, second: second}
			}
			if found.cpu.folder == "" {
				folder := nearest(top, g.Path, func(folder string) bool { return quota(folder, second) > 0 })
				found.cpu = resource{folder: folder, spent: filepath.Join(folder, "cpu.stat"), second: second}
				if !second { // It is counted by a controller of its own, with the same groups.
					found.cpu.spent = filepath.Join(root, "cpuacct", strings.TrimPrefix(folder, top), "cpuacct.usage")
				}
			}
		}
	}
	return found
}

// tops returns where a hierarchy may be mounted.
func tops(root string, g procfs.Cgroup) (all []string) {
	if g.HierarchyID == 0 {
		return []string{root, filepath.Join(root, "unified")}
	}
	for _, controller := range []string{"memory", "cpu"} {
		if slices.Contains(g.Controllers, controller) {
			all = append(all, filepath.Join(root, controller))
		}
	}
	return all
}

// nearest returns the folder of a group, or of the nearest above it, that has a limit; "" for none. In a container its own group may be
// mounted as the top, under a path that is not there.
func nearest(top, path string, limited func(folder string) bool) string {
	for ; ; path = filepath.Dir(path) {
		if folder := filepath.Join(top, path); limited(folder) {
			return folder
		}
		if path == "/" || path == "." || path == "" {
			return ""
		}
	}
}

// noLimit is from where on a limit of version 1 is none: it says so by the largest number of pages.
const noLimit = math.MaxInt64 / 2

// memoryLimit returns the limit of a group in bytes, 0 for none.
func memoryLimit(folder string, second bool) int64 {
	file := "memory.limit_in_bytes"
	if second {
		file = "memory.max"
	}
	if n, ok := number(filepath.Join(folder, file)); ok && n < noLimit {
		return n
	}
	return 0
}

// memoryUsed returns what cannot be dropped of a group's memory, in bytes.
func memoryUsed(folder string, second bool) int64 {
	file, dropped := "memory.usage_in_bytes", "total_inactive_file"
	if second {
		file, dropped = "memory.current", "inactive_file"
	}
	used, _ := number(filepath.Join(folder, file))
	files, err := field(filepath.Join(folder, "memory.stat"), dropped)
	if err != nil {
		files = 0 // Then it counts, which is on the safe side.
	}
	return max(used-files, 0)
}

// quota returns how many processors' time a group may have, 0 for no limit.
func quota(folder string, second bool) float64 {
	if !second {
		most, ok := number(filepath.Join(folder, "cpu.cfs_quota_us"))
		period, there := number(filepath.Join(folder, "cpu.cfs_period_us"))
		if !ok || !there || most <= 0 || period <= 0 {
			return 0
		}
		return float64(most) / float64(period)
	}
	text, err := os.ReadFile(filepath.Join(folder, "cpu.max"))
	if err != nil {
		return 0
	}
	first, rest, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	most, err := strconv.ParseFloat(first, 64)
	period, bad := strconv.ParseFloat(rest, 64)
	if err != nil || bad != nil || period <= 0 {
		return 0 // "max" is none.
	}
	return most / period
}

// spentBy returns the time of processors that a group has used, in seconds.
func spentBy(file string, second bool) float64 {
	if second {
		n, _ := field(file, "usage_usec") // A group that is gone has used nothing since.
		return float64(n) / 1e6
	}
	n, _ := number(file)
	return float64(n) / 1e9
}

// sample adds what the groups use.
func (c *cgroup) sample(s *Sample, passed float64, first bool) {
	if c.memory.folder != "" {
		s.CgroupMemory, s.CgroupMemoryLimit = memoryUsed(c.memory.folder, c.memory.second), memoryLimit(c.memory.folder, c.memory.second)
	}
	if c.cpu.folder == "" {
		return
	}
	spent := spentBy(c.cpu.spent, c.cpu.second)
	s.CgroupCPULimit = quota(c.cpu.folder, c.cpu.second)
	if !first {
		s.CgroupCPU = max(spent-c.spent, 0) / passed
	}
	c.spent = spent
}
