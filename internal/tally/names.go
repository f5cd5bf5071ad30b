package tally

import (
	"time"

	"github.com/headgate/headgate/internal/hyperloglog"
)

const (
	// maxNamed is of how many queues a process tells the names, 32 KiB each. Those beyond are not told of.
	maxNamed = 128
	// maxFresh is how many names of a queue wait to be told, of tenants and of jobs. Those beyond are not told of.
	maxFresh = 4096
)

// names are those of tenants and jobs by queue, of which the store is to be told: each that may make a difference to how many different ones
// there were in the hour. What was told once in an hour is not told again.
type names struct {
	hour int64
	of   map[string]*named
}

// named are the names of one queue. known has those that were told, too.
type named struct {
	known struct{ tenants, jobs hyperloglog.Sketch }
	fresh fresh
}

// fresh are names that are to be told.
type fresh struct{ tenants, jobs []string }

// begin forgets what was told in the hour before. What is still to be told is told in this one.
func (n *names) begin(now time.Time) {
	hour := now.Unix() / int64(time.Hour/time.Second)
	if n.of == nil || n.hour != hour {
		before := n.of
		n.hour, n.of = hour, map[string]*named{}
		for queue, one := range before {
			for _, tenant := range one.fresh.tenants {
				n.addTenant(queue, tenant)
			}
			for _, job := range one.fresh.jobs {
				n.addJob(queue, job)
			}
		}
	}
}

// queue returns the names of a queue, nil where it is one too many.
func (n *names) queue(name string) *named {
	one := n.of[name]
	if one == nil && len(n.of) < maxNamed {
		one = &named{}
		n.of[name] = one
	}
	return one
}

func (n *names) addTenant(queue, tenant string) {
	if one := n.queue(queue); one != nil && len(one.fresh.tenants) < maxFresh && one.known.tenants.Add(tenant) {
		one.fresh.tenants = append(one.fresh.tenants, tenant)
	}
}

func (n *names) addJob(queue, job string) {
	if one := n.queue(queue); one != nil && len(one.fresh.jobs) < maxFresh && one.known.jobs.Add(job) {
		one.fresh.jobs = append(one.fresh.jobs, job)
	}
}

// take returns what is to be told.
func (n *names) take() map[string]fresh {
	taken := map[string]fresh{}
	for queue, one := range n.of {
		if len(one.fresh.tenants)+len(one.fresh.jobs) > 0 {
			taken[queue], one.fresh = one.fresh, fresh{}
		}
	}
	return taken
}

// giveBack adds what was taken and not told.
func (n *names) giveBack(taken map[string]fresh) {
	for queue, f := range taken {
		if one := n.of[queue]; one != nil {
			one.fresh.tenants, one.fresh.jobs = append(f.tenants, one.fresh.tenants...), append(f.jobs, one.fresh.jobs...)
		}
	}
}
