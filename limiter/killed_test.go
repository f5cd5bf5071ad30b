package limiter

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// childVariable makes a process of this test binary a limiter: "URL PREFIX".
const childVariable = "HEADGATE_LIMITER_CHILD"

// killedLimit is what all processes share.
var killedLimit = admission.PerSecond(2000).WithBurst(500)

// inChild calls do with a limiter of a process that a test kills, and with a ctx that ends with its stdin. It returns the exit code.
func inChild(url, prefix string, p *policy.Policy, do func(ctx context.Context, s store.Deployment, l *Limiter) int) int {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // the main of its process
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	s, err := redisstore.Connect(ctx, url, redisstore.Config{Prefix: prefix})
	if err != nil {
		return 1
	}
	l, err := New(s, Config{Policy: p, Timeout: patient})
	if err != nil {
		return 1
	}
	return do(ctx, s, l)
}

// spend checks as often as it can until it is killed or its stdin ends, and says so after each fifty that were admitted.
func spend(at string) int {
	url, prefix, _ := strings.Cut(at, " ")
	return inChild(url, prefix, limited(killedLimit, none), spendAll)
}

func spendAll(ctx context.Context, s store.Deployment, l *Limiter) int {
	tenants := tenantsOf(s)
	for n, admitted := 0, 0; ctx.Err() == nil; n++ {
		v, err := l.Check(ctx, Request{Tenant: tenants[n%len(tenants)]})
		if err != nil {
			continue
		}
		if v.Admitted {
			if admitted++; admitted%50 == 0 {
				_, _ = fmt.Fprintln(os.Stdout, 50, v.Source)
			}
			continue
		}
		select {
		case <-time.After(min(v.RetryAfter, 10*time.Millisecond)):
		case <-ctx.Done():
		}
	}
	return 0
}

// TestKilledProcessesKeepTheBound: processes are killed with tokens on lease, and others take their places. What all of them
// said that they admitted is within burst + rate·t, also where the limit is divided over the masters of a cluster.
func TestKilledProcessesKeepTheBound(t *testing.T) {
	t.Parallel()
	t.Run("one redis", func(t *testing.T) {
		t.Parallel()
		killLimiters(t, "redis://"+redistest.Shared(t).Addr(), redistest.Prefix(t))
	})
	t.Run("a cluster of three masters", func(t *testing.T) {
		t.Parallel()
		cluster, prefix := redistest.StartNodes(t, 3, false), redistest.Prefix(t)
		_, err := redisstore.Open(t.Context(), cluster.Client(t), redisstore.Config{Prefix: prefix, Partitions: 3})
		check(t, err)
		killLimiters(t, cluster.URL(), prefix)
	})
}

func killLimiters(t *testing.T, url, prefix string) {
	t.Helper()
	lines := make(chan string)
	spawn := func() *exec.Cmd {
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), childVariable+"="+url+" "+prefix)
		_, err := child.StdinPipe() // It ends with this process.
		check(t, err)
		out, err := child.StdoutPipe()
		check(t, err)
		check(t, child.Start())
		go func() {
			for scanner := bufio.NewScanner(out); scanner.Scan(); {
				lines <- scanner.Text()
			}
			lines <- "" // All are read until each has said so.
		}()
		return child
	}
	began := time.Now()
	children := []*exec.Cmd{spawn(), spawn(), spawn()}
	living, kills, admitted, leased := len(children), 0, 0, 0
	for living > 0 {
		line := <-lines
		if line == "" {
			living--
			continue
		}
		words := strings.Fields(line)
		count, err := strconv.Atoi(words[0])
		check(t, err)
		if admitted += count; words[1] == Leased.String() {
			leased += count
		}
		bound := float64(killedLimit.Burst) + float64(killedLimit.Rate())*time.Since(began).Seconds()
		if float64(admitted) > bound {
			t.Errorf("%d admitted, bound %.0f", admitted, bound)
		}
		// Each 400 admissions the oldest is killed, in the middle of whatever it does.
		if admitted/400 > kills && len(children) > 0 {
			kills++
			check(t, children[0].Process.Kill())
			_ = children[0].Wait()
			children = children[1:]
			if kills <= 5 {
				children, living = append(children, spawn()), living+1
			}
		}
	}
	if leased == 0 || kills < 8 {
		t.Errorf("%d of %d admissions leased, %d killed", leased, admitted, kills)
	}
}
