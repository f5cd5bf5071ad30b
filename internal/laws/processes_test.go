package laws_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestPatternHoldsOverProcesses asserts L6 with four schedulers and three workers in processes of their own. All three
// fill: workers when they finish, schedulers when a retry is due, a lease has ended or the queue's pause is over. A
// worker and a scheduler are killed on the way, and others take their place. What the workers report is compared with
// the server's journal, which has the order of all dispatches, those included that were taken back before anybody saw
// them.
func TestPatternHoldsOverProcesses(t *testing.T) {
	t.Parallel()
	for name, classes := range map[string][]admission.Class{
		"high 3 medium 2 low 1": admission.DefaultClasses(), "critical 4 high 3 medium 2 low 1": policy.PresetCritical(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCast(t, classes)
			for i := range 4 {
				c.start(schedulerRole, "s"+strconv.Itoa(i))
			}
			for i := range 3 {
				c.start(workerRole, "w"+strconv.Itoa(i))
			}
			c.run()
			c.compare()
		})
	}
}

const (
	castDispatches = 3000
	castTenants    = 40
)

// cast is a fleet of processes and what they were seen to do.
type cast struct {
	*site
	classes []admission.Class
	players map[string]*exec.Cmd
	killed  []*exec.Cmd
	inputs  []io.Closer
	readers sync.WaitGroup
	seen    struct {
		sync.Mutex
		class map[string]int // by token, as the workers report
	}
}

func newCast(t *testing.T, classes []admission.Class) *cast {
	t.Helper()
	c := &cast{site: newSite(t, redistest.Start(t, redistest.Options{AppendFsync: "no"})), classes: classes, players: map[string]*exec.Cmd{}}
	c.seen.class = map[string]int{}
	c.putPolicy(store.PolicyUpdate{Queues: []store.QueueSettings{{Queue: "mail", Classes: classes, Horizon: time.Hour}}})
	var jobs []store.Candidate
	cycle := cycleOf(classes)
	for range castDispatches * 3 / 2 / len(cycle) {
		for _, class := range cycle {
			j := c.job(fmt.Sprintf("t%d", c.between(1, castTenants)), "mail", class, classes)
			j.Job.MaxAttempts = admission.MaxAttemptsLimit
			jobs = append(jobs, j)
		}
	}
	c.random.Shuffle(len(jobs), func(i, k int) { jobs[i], jobs[k] = jobs[k], jobs[i] })
	c.admit(jobs...)
	t.Cleanup(c.close)
	return c
}

// start runs this binary again in a role.
func (c *cast) start(role, name string) {
	c.Helper()
	binary, err := os.Executable()
	c.check(err)
	//nolint:gosec // It is this binary.
	command := exec.CommandContext(c.Context(), binary)
	command.Env = append(os.Environ(), roleVariable+"="+role, nameVariable+"="+name, prefixVariable+"="+c.prefix,
		addrVariable+"="+c.server.Addr())
	command.SysProcAttr = dieWithParent()
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	c.check(err)
	output, err := command.StdoutPipe()
	c.check(err)
	c.check(command.Start())
	c.players[name] = command
	c.inputs = append(c.inputs, input)
	c.readers.Go(func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			token, class, _ := strings.Cut(lines.Text(), " ")
			n, err := strconv.Atoi(class)
			if err != nil {
				continue // The last line of one that was killed.
			}
			c.note(token, n)
		}
	})
}

func (c *cast) note(token string, class int) {
	c.seen.Lock()
	defer c.seen.Unlock()
	if before, ok := c.seen.class[token]; ok && before != class {
		c.Errorf("dispatch %s is of class %d and of class %d", token, before, class)
	}
	c.seen.class[token] = class
}

func (c *cast) count() int {
	c.seen.Lock()
	defer c.seen.Unlock()
	return len(c.seen.class)
}

// run pauses the queue now and then, kills two on the way, and returns when all have ended.
func (c *cast) run() {
	c.Helper()
	kill := map[int]func(){
		castDispatches / 3: func() { c.replace(workerRole, "w1", "w3") },
		castDispatches / 2: func() { c.replace(schedulerRole, "s2", "s4") },
	}
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for round := 1; c.count() < castDispatches; round++ {
		<-poll.C
		if c.Context().Err() != nil {
			c.Fatalf("%d dispatches: %v", c.count(), context.Cause(c.Context()))
		}
		for at, act := range kill {
			if c.count() >= at {
				act()
				delete(kill, at)
			}
		}
		if round%4 == 0 {
			_, _, err := c.store.SetGate(c.Context(), store.Gate{
				Name: store.QueueGate("mail"), Limit: 0, For: 3 * time.Millisecond, Then: store.Unlimited, By: store.Intervention{Reason: "pause"},
			})
			c.check(err)
		}
	}
	for _, input := range c.inputs {
		_ = input.Close() // A killed one has closed it.
	}
	c.readers.Wait()
	for name, command := range c.players {
		if err := command.Wait(); err != nil {
			c.Errorf("%s: %v", name, err)
		}
	}
	clear(c.players)
	for _, command := range c.killed {
		_ = command.Wait() // "signal: killed"
	}
}

// replace kills a process as a crash would, and starts another.
func (c *cast) replace(role, old, fresh string) {
	c.Helper()
	c.check(c.players[old].Process.Kill())
	c.killed = append(c.killed, c.players[old])
	delete(c.players, old)
	c.start(role, fresh)
}

// close ends whoever is left when a test fails.
func (c *cast) close() {
	for _, command := range c.players {
		_ = command.Process.Kill()
		_ = command.Wait()
	}
}

// compare asserts that the dispatches are a stretch of the pattern, and that no worker held anything else.
func (c *cast) compare() {
	c.Helper()
	stream := redisstore.Keys(c.store).Ready(mailPool.ID())
	all, added, err := c.dispatches(stream)
	c.check(err)
	info, err := c.client.XInfoStream(c.Context(), stream).Result()
	c.check(err)
	if added != info.EntriesAdded {
		c.Fatalf("the journal has %d entries of the stream, of %d dispatches in all, the stream had %d", added, len(all), info.EntriesAdded)
	}
	order := make([]int, castDispatches)
	for i, d := range all {
		if class, ok := c.seen.class[d.token]; ok && class != d.class {
			c.Errorf("dispatch %s is of class %d, and a worker had it as of class %d", d.token, d.class, class)
		}
		delete(c.seen.class, d.token)
		if i < castDispatches {
			order[i] = d.class
		}
	}
	if len(c.seen.class) > 0 {
		c.Errorf("workers held what was never dispatched: %v", c.seen.class)
	}
	c.check(checkStretch(order, c.classes))
	c.census()
}
