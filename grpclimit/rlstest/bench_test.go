package rlstest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/procfs"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
)

// tenants ask, each as often as the others.
const tenants = 100

// BenchmarkGateways: 20,000 calls a second, of 100 tenants whose limits admit all, to one process of `headgate serve` with a Redis of its own: by grpc-go's
// client on four connections to the rate limit service, and by net/http's over kept connections to the HTTP API's check. Time counts from when a
// call was due, whatever becomes of those before; calls are left out, and counted, while 4,000 are under way. The two take turns, three times each.
func BenchmarkGateways(b *testing.B) {
	service, api, spent := startServe(b)
	var clients []ratelimit.RateLimitServiceClient
	for range 4 {
		clients = append(clients, ratelimit.NewRateLimitServiceClient(dial(b, "passthrough:///"+service)))
	}
	var messages [tenants]*ratelimit.RateLimitRequest
	var bodies [tenants]string
	for i := range tenants {
		messages[i] = asked(1, descriptor("tenant", fmt.Sprint("tenant-", i)))
		bodies[i] = fmt.Sprintf(`{"scope":"tenant-%d"}`, i)
	}
	kept := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4000}}
	defer kept.CloseIdleConnections()
	ways := map[string]func(n int) error{
		"rls": func(n int) error {
			answer, err := clients[n%len(clients)].ShouldRateLimit(b.Context(), messages[n%tenants])
			if err == nil && answer.GetOverallCode() != ratelimit.RateLimitResponse_OK {
				err = fmt.Errorf("answered %s", answer.GetOverallCode())
			}
			return err
		},
		"http": func(n int) error {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, api+"/api/v1/rate-limit/check", strings.NewReader(bodies[n%tenants]))
			if err != nil {
				return err
			}
			r.Header.Set("Content-Type", "application/json")
			answer, err := kept.Do(r)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
			if err == nil && answer.StatusCode != http.StatusOK {
				err = fmt.Errorf("answered %s", answer.Status)
			}
			return err
		},
	}
	for _, rate := range []int{5, 10, 20} { // A millisecond.
		for round := range 3 {
			for _, name := range []string{"rls", "http"} {
				b.Run(fmt.Sprintf("%s/%d000/%d", name, rate, round+1), func(b *testing.B) {
					for b.Loop() {
						paced(b, ways[name], rate, 500*time.Millisecond) // Until connections are open, and leases.
						before := spent()
						took, failed, left := paced(b, ways[name], rate, 3*time.Second)
						b.ReportMetric(1e6*(spent()-before)/float64(len(took)+int(failed)), "server-cpu-us/call")
						b.ReportMetric(1e3*took[len(took)/2], "p50-ms")
						b.ReportMetric(1e3*took[len(took)*99/100], "p99-ms")
						b.ReportMetric(float64(len(took))/3, "calls/s")
						b.ReportMetric(float64(failed), "failed")
						b.ReportMetric(float64(left), "left-out")
						b.ReportMetric(0, "ns/op")
					}
				})
			}
		}
	}
}

// paced makes so many calls each millisecond, and returns what those that were answered took, in seconds, in order.
func paced(b *testing.B, call func(n int) error, each int, span time.Duration) (took []float64, failed, left int64) {
	b.Helper()
	const most = 4000
	var mu sync.Mutex
	var sent sync.WaitGroup
	var underWay, errs atomic.Int64
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	begin, n := time.Now(), 0
	for due := 0; due < int(span/time.Millisecond)*each; {
		<-ticks.C
		due = int(time.Since(begin)/time.Millisecond) * each // A tick may be late; none is left out.
		for ; n < due; n++ {
			if underWay.Load() >= most {
				left++
				continue
			}
			underWay.Add(1)
			at := begin.Add(time.Duration(n/each+1) * time.Millisecond)
			sent.Go(func() {
				defer underWay.Add(-1)
				if err := call(n); err != nil {
					if errs.Add(1) == 1 {
						b.Log(err)
					}
					return
				}
				d := time.Since(at).Seconds()
				mu.Lock()
				defer mu.Unlock()
				took = append(took, d)
			})
		}
	}
	sent.Wait()
	slices.Sort(took)
	if len(took) == 0 {
		b.Fatal("nothing was answered")
	}
	return took, errs.Load(), left
}

// startServe builds and starts `headgate serve` on a Redis of its own, and returns where it listens, and how many seconds of a processor it has used.
func startServe(b *testing.B) (service, api string, spent func() float64) {
	b.Helper()
	redis := redistest.Start(b, redistest.Options{})
	hg, err := headgate.Open(b.Context(), redis.URL(), headgate.Config{})
	check(b, err)
	p := policy.Unlimited()
	p.Global = admission.PerSecond(100_000_000)
	p.Tiers[policy.StandardTier] = policy.Tier{Limit: admission.PerSecond(1_000_000)}
	check(b, hg.Policy().Set(b.Context(), p, headgate.Edit{}))
	check(b, hg.Close())
	folder := b.TempDir()
	binary, file := filepath.Join(folder, "headgate"), filepath.Join(folder, "rls.yaml")
	build := exec.CommandContext(b.Context(), "go", "build", "-o", binary, "./cmd/headgate")
	build.Dir = filepath.Join("..", "..")
	if text, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, text)
	}
	check(b, os.WriteFile(file, []byte(mapping), 0o600))
	serve := exec.CommandContext(context.WithoutCancel(b.Context()), binary, "serve")
	serve.Env = append(os.Environ(), "HEADGATE_REDIS="+redis.URL(), "HEADGATE_SERVE_ADDRESS=127.0.0.1:0", "HEADGATE_SERVE_RLS_LISTEN=127.0.0.1:0", "HEADGATE_SERVE_RLS_MAPPING_FILE="+file,
		"HEADGATE_SERVE_INSECURE_NO_AUTH=true", "HEADGATE_SERVE_ADMIN_RATE=1000000000", "HEADGATE_SERVE_ADMIN_BURST=1000000000", "HEADGATE_SERVE_TENANT_RATE=1000000000",
		"HEADGATE_SERVE_TENANT_BYTES=17179869184", "HEADGATE_SERVE_MAX_CONNECTIONS_PER_ADDRESS=4096")
	log, err := serve.StderrPipe()
	check(b, err)
	check(b, serve.Start())
	b.Cleanup(func() {
		check(b, serve.Process.Signal(os.Interrupt))
		_ = serve.Wait()
	})
	lines := bufio.NewScanner(log)
	for service == "" || api == "" {
		if !lines.Scan() {
			b.Fatal("headgate serve has ended; it said: " + lines.Text())
		}
		var event struct{ Message, Address string }
		_ = json.Unmarshal(lines.Bytes(), &event) // Other lines are of no account.
		switch event.Message {
		case "admin API listens":
			api = event.Address
		case "the rate limit service listens":
			service = event.Address
		}
	}
	go func() { _, _ = io.Copy(io.Discard, log) }()
	return service, api, func() float64 {
		process, err := procfs.NewProc(serve.Process.Pid)
		check(b, err)
		stat, err := process.Stat()
		check(b, err)
		return stat.CPUTime()
	}
}
