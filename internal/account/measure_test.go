package account_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
)

// cost is what one call costs.
type cost struct {
	// commands are those that the call sends, or its script: "2 HMGET b", most of its calls alike.
	commands []string
	// micros is Redis's time, inner the part of the script's commands. Only an update measures them.
	micros, inner float64
	// sent and received are bytes on the wire.
	sent, received int64
	// allocations and allocated (bytes) are Go's, of the whole process.
	allocations, allocated int64
}

// measure makes calls, first some that nobody counts, and returns what they cost at least: whatever else goes on in the
// process adds to it. Each has a preparation that is not counted either.
func (s *site) measure(prepare func() (call func()), calls int) cost {
	s.Helper()
	for range 3 {
		prepare()()
	}
	commands := s.watch(prepare, calls)
	// Collections would empty go-redis's pools, and a goroutine that ended elsewhere would be made anew.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	least := s.once(prepare)
	for range calls - 1 {
		one := s.once(prepare)
		least.sent, least.received = min(least.sent, one.sent), min(least.received, one.received)
		least.allocations, least.allocated = min(least.allocations, one.allocations), min(least.allocated, one.allocated)
	}
	least.commands = commands
	return least
}

// once measures the bytes and allocations of one call.
func (s *site) once(prepare func() (call func())) (c cost) {
	s.Helper()
	call := prepare()
	s.noteMemory()
	c.sent, c.received = -s.wire.sent.Load(), -s.wire.received.Load()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	c.allocations, c.allocated = int64(after.Mallocs-before.Mallocs), int64(after.TotalAlloc-before.TotalAlloc) //nolint:gosec // far below 2^63
	c.sent, c.received = c.sent+s.wire.sent.Load(), c.received+s.wire.received.Load()
	return c
}

// time returns the microseconds that Redis takes for a call, by its slow log, which has every command here: the mean of the
// quickest quarter, as whoever took the processor away meanwhile is no part of the cost. inner is the part of the commands
// inside a script, by the statistics.
func (s *site) time(prepare func() (call func()), calls int) (all, inner float64) {
	s.Helper()
	var micros, inside []float64
	for range calls {
		call := prepare()
		s.noteMemory()
		call()
		last, err := s.aside.SlowLogGet(s.Context(), 1).Result()
		s.check(err)
		micros = append(micros, float64(last[0].Duration)/float64(time.Microsecond))
	}
	for range calls {
		call := prepare()
		s.noteMemory()
		s.check(s.aside.ConfigResetStat(s.Context()).Err())
		call()
		inside = append(inside, s.inside())
	}
	all = quickest(micros)
	return all, min(all, quickest(inside))
}

func quickest(all []float64) (mean float64) {
	slices.Sort(all)
	quarter := all[:(len(all)+3)/4]
	for _, one := range quarter {
		mean += one / float64(len(quarter))
	}
	return mean
}

// inside returns the microseconds that Redis has spent on commands inside scripts, or that are none, since its statistics
// began anew.
func (s *site) inside() (micros float64) {
	s.Helper()
	for name, stat := range redistest.CommandStats(s.T, s.aside) {
		if name != "fcall" && name != "config|resetstat" {
			micros += stat.Micros
		}
	}
	return micros
}

// watch returns the commands of a call as MONITOR shows them, FCALL itself apart: those of most of so many calls.
func (s *site) watch(prepare func() (call func()), calls int) []string {
	s.Helper()
	monitor := newMonitor(s.T, s.server.Addr())
	defer monitor.close()
	seen, most := map[string]int{}, ""
	for range calls {
		call := prepare()
		s.noteMemory()
		s.check(s.aside.Echo(s.Context(), begins).Err())
		call()
		s.check(s.aside.Echo(s.Context(), ends).Err())
		text := strings.Join(s.grouped(monitor.between(s)), ", ")
		seen[text]++
		if seen[text] > seen[most] {
			most = text
		}
	}
	if 2*seen[most] <= calls {
		s.Errorf("%s: no two calls send the same: %v", s.Name(), seen)
	}
	if most == "" {
		return nil
	}
	return strings.Split(most, ", ")
}

// What stands in MONITOR's output before and after the commands of a call.
const begins, ends = "a-call-begins", "a-call-ends"

// grouped counts commands with the same kind of key, in the order of the first of each.
func (s *site) grouped(commands []command) (texts []string) {
	var kinds []string
	counts := map[string]int{}
	for _, c := range commands {
		text := strings.TrimSpace(c.name + " " + s.kind(c.key))
		if c.name == "FCALL" {
			continue
		}
		if counts[text]++; counts[text] == 1 {
			kinds = append(kinds, text)
		}
	}
	for _, text := range kinds {
		if counts[text] > 1 {
			text = fmt.Sprintf("%d %s", counts[text], text)
		}
		texts = append(texts, text)
	}
	return texts
}

// kind is what docs/design/keys.md calls a key: the part before the first colon.
func (s *site) kind(key string) string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(key, redisstore.Keys(s.store).Base()), ":")
	return kind
}

// command is one that Redis has run.
type command struct{ name, key string }

// monitor reads what Redis says it runs, which makes Redis slower for as long.
type monitor struct {
	conn  net.Conn
	lines *bufio.Reader
}

func newMonitor(tb testing.TB, address string) *monitor {
	tb.Helper()
	conn, err := (&net.Dialer{}).DialContext(tb.Context(), "tcp", address)
	if err != nil {
		tb.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		tb.Fatal(err)
	}
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		tb.Fatal(err)
	}
	return &monitor{conn, bufio.NewReader(conn)}
}

// patience is how long a row may take.
const patience = time.Minute

func (m *monitor) close() { _ = m.conn.Close() } // It has nothing to lose.

// between returns the commands of the next call.
func (m *monitor) between(s *site) (commands []command) {
	s.Helper()
	inside := false
	for {
		line, err := m.lines.ReadString('\n')
		s.check(err)
		_, said, ok := strings.Cut(line, "] ")
		if !ok {
			continue // MONITOR's own answer
		}
		args := strings.Split(strings.Trim(said, "\"\r\n"), `" "`)
		c := command{name: strings.ToUpper(args[0])}
		switch {
		case c.name == "ECHO" && args[1] == begins:
			inside = true
			continue
		case c.name == "ECHO" && args[1] == ends:
			return commands
		case !inside:
			continue
		case c.name == "XREADGROUP":
			c.key = args[slices.Index(args, "streams")+1]
		case len(args) > 1:
			c.key = args[1]
		}
		commands = append(commands, c)
	}
}

// wire counts the bytes of a client's connections.
type wire struct{ sent, received atomic.Int64 }

// dial makes a connection that counts; it is the Dialer of a client.
func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return wireConn{conn, w}, nil
}

type wireConn struct {
	net.Conn
	wire *wire
}

func (c wireConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.wire.received.Add(int64(n))
	return n, err
}

func (c wireConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.wire.sent.Add(int64(n))
	return n, err
}
