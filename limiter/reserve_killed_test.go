package limiter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// reserveVariable makes a process of this test binary one that reserves and commits: "URL PREFIX EXPIRY".
const reserveVariable = "HEADGATE_RESERVE_CHILD"

const (
	reserveBurst = 9000
	reserveCost  = 20 // what each reserves; it commits between nothing and twice as much
)

// reservePolicy is what all processes share: limits to which a token comes in five minutes.
func reservePolicy(expireAfter time.Duration) *policy.Policy {
	slow := admission.Limit{Tokens: reserveBurst, Per: 31 * 24 * time.Hour, Burst: reserveBurst}
	limit := policy.DimensionRules{Limit: slow}
	p := beside(slow, map[string]policy.DimensionRules{"user": limit, "route": limit, "model": limit})
	p.Reservations.ExpireAfter = expireAfter
	return p
}

// reserveWays are the values that all reservations name.
func reserveWays() []Dimension { return also("user", "1", "route", "/a", "model", "m") }

// reserveAndCommit does so until it is killed or its stdin ends, and says what it is about to commit once it has reserved, and that it has.
func reserveAndCommit(at string) int {
	var url, prefix, expiry string
	if _, err := fmt.Sscan(at, &url, &prefix, &expiry); err != nil {
		return 4
	}
	expireAfter, err := time.ParseDuration(expiry)
	if err != nil {
		return 4
	}
	return inChild(url, prefix, reservePolicy(expireAfter), reserveAll)
}

func reserveAll(ctx context.Context, _ store.Deployment, l *Limiter) int {
	for n := 0; ctx.Err() == nil; n++ {
		_, _ = fmt.Fprintln(os.Stdout, "reserve")
		r, err := l.Reserve(ctx, Request{Tenant: "acme", Cost: reserveCost, Also: reserveWays()})
		if err != nil {
			return 2
		}
		actual := admission.Tokens(n * 7 % (2*reserveCost + 1))
		_, _ = fmt.Fprintln(os.Stdout, "reserved", actual)
		for range 2 { // The second does nothing.
			if err := r.Commit(ctx, actual); err != nil && !errors.Is(err, context.Canceled) {
				return 3
			}
		}
		_, _ = fmt.Fprintln(os.Stdout, "committed", actual)
	}
	return 0
}

// reserver is one that lives, or what it said last.
type reserver struct {
	cmd      *exec.Cmd
	doing    string // "reserve" or "reserved"
	actual   admission.Tokens
	told     admission.Tokens // what it has said to have committed
	reserves int
}

// TestKilledProcessesChargeAllWaysOrNone: processes are killed as they reserve, between that and the commit, and as they commit. Each way lacks what was committed, and
// of each that was killed what it had reserved, or told, at most once; on one Redis all ways lack the same, to the token. Over partitions a way may lack the cost of
// what was killed on its way through them.
func TestKilledProcessesChargeAllWaysOrNone(t *testing.T) {
	t.Parallel()
	t.Run("one redis", func(t *testing.T) {
		t.Parallel()
		killReservers(t, "redis://"+redistest.Shared(t).Addr(), redistest.Prefix(t), 1, 0)
	})
	t.Run("three partitions", func(t *testing.T) {
		t.Parallel()
		redis, prefix := redistest.Shared(t), redistest.Prefix(t)
		_, err := redisstore.Open(t.Context(), redis.Client(t), redisstore.Config{Prefix: prefix, Partitions: 3})
		check(t, err)
		killReservers(t, "redis://"+redis.Addr(), prefix, 3, 20*time.Second)
	})
}

func killReservers(t *testing.T, url, prefix string, partitions int, expireAfter time.Duration) {
	t.Helper()
	const victims = 12
	var told admission.Tokens
	least, most, between := admission.Tokens(0), admission.Tokens(0), 0
	for n := range victims {
		r := &reserver{}
		r.run(t, url, prefix, expireAfter, 4+n%5, n%3)
		told += r.told
		switch r.doing {
		case "reserve": // It may have reserved, and told, which is said afterwards.
			most += 2 * reserveCost
		case "reserved":
			between++
			least, most = least+min(r.actual, reserveCost), most+max(r.actual, reserveCost)
		}
	}
	if between == 0 {
		t.Error("none was killed between reserving and committing")
	}
	s, err := redisstore.Connect(t.Context(), url, redisstore.Config{Prefix: prefix})
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	l := start(t, s, Config{Policy: reservePolicy(expireAfter), Timeout: patient, Exact: true})
	lacks := map[string]admission.Tokens{"acme": missing(t, s, reservePolicy(expireAfter))}
	for _, d := range reserveWays() {
		lacks[d.Name] = reserveBurst - leftIn(t, l, d.Name, d.Value, "acme")
	}
	for way, n := range lacks {
		if n < told+least || n > told+most {
			t.Errorf("%s lacks %d, want %d to %d: %d were told, %d killed between", way, n, told+least, told+most, told, between)
		}
		if partitions == 1 && n != lacks["acme"] {
			t.Errorf("%s lacks %d, acme %d", way, n, lacks["acme"])
		}
	}
}

// run has a process make some reservations, and kills it: as it reserves, once it has reserved, or while it commits.
func (r *reserver) run(t *testing.T, url, prefix string, expireAfter time.Duration, after, when int) {
	t.Helper()
	r.cmd = exec.CommandContext(t.Context(), os.Args[0])
	r.cmd.Env = append(os.Environ(), reserveVariable+"="+url+" "+prefix+" "+expireAfter.String())
	_, err := r.cmd.StdinPipe() // It ends with this process.
	check(t, err)
	out, err := r.cmd.StdoutPipe()
	check(t, err)
	check(t, r.cmd.Start())
	killed := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "reserve":
			r.reserves++
			r.doing = words[0]
		case "reserved":
			_, err := fmt.Sscan(words[1], &r.actual)
			check(t, err)
			r.doing = words[0]
		case "committed":
			r.told += r.actual
			r.doing = ""
		}
		if r.reserves > after && !killed && (words[0] == "reserve") == (when == 0) {
			if when == 2 { // In the middle of its commit, or of what follows.
				time.Sleep(200 * time.Microsecond) //nolint:forbidigo // No order is promised: any moment is one to be killed at.
			}
			killed = true
			check(t, r.cmd.Process.Kill())
		}
	}
	_ = r.cmd.Wait()
	if !killed {
		t.Errorf("a process ended by itself: %s", r.cmd.ProcessState)
	}
}
