package rlstest

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/procfs"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
)

// tenants ask, each by a process of h2load with one connection.
const tenants = 4

// peerMain is the main package of envoyproxy's rate limit service.
const peerVersion, peerMain = "v1.4.1-0.20260122083618-3fb702589d36", "github.com/envoyproxy/ratelimit/src/service_cmd"

// BenchmarkGateways: calls of tenants whose limits admit all, at so many a second, to the rate limit service of `headgate serve`, to that of envoyproxy/ratelimit, and to
// the HTTP API's check of the former. Each server is one process, with a Redis of its own; the client is h2load, as one in C leaves most of two cores to
// them. Calls are sent by the clock while a connection has room, and times count from when one was sent; the three take turns, three times at each rate.
func BenchmarkGateways(b *testing.B) {
	if _, err := exec.LookPath("h2load"); err != nil {
		b.Fatal("h2load is missing: apt-get install nghttp2-client")
	}
	service, api, spent := startServe(b)
	other, spentThere := startPeer(b)
	ways := []struct {
		name  string
		args  []string
		body  func(tenant string) []byte
		spent func() float64
	}{
		{"headgate", []string{"-m", "50", "-H", "content-type: application/grpc", "-H", "te: trailers", "http://" + service + ratelimit.RateLimitService_ShouldRateLimit_FullMethodName}, message, spent},
		{"envoyproxy", []string{"-m", "50", "-H", "content-type: application/grpc", "-H", "te: trailers", "http://" + other + ratelimit.RateLimitService_ShouldRateLimit_FullMethodName}, message, spentThere},
		{"http-api", []string{"--h1", "-c", "25", "-H", "content-type: application/json", api + "/api/v1/rate-limit/check"}, func(tenant string) []byte { return fmt.Appendf(nil, `{"scope":%q}`, tenant) }, spent},
	}
	for _, rate := range []int{5000, 10_000, 20_000, 40_000} {
		for round := range 3 {
			for _, way := range ways {
				b.Run(fmt.Sprintf("%s/%d/%d", way.name, rate, round+1), func(b *testing.B) {
					for b.Loop() {
						took, failed, used := load(b, rate, way.args, way.body, way.spent)
						b.ReportMetric(used, "server-cpu-us/call")
						b.ReportMetric(took[len(took)/2]/1000, "p50-ms")
						b.ReportMetric(took[len(took)*99/100]/1000, "p99-ms")
						b.ReportMetric(float64(len(took))/lasts, "calls/s")
						b.ReportMetric(float64(failed), "failed")
						b.ReportMetric(0, "ns/op")
					}
				})
			}
		}
	}
}

// message is a call as it is sent.
func message(tenant string) []byte {
	text, err := proto.Marshal(asked(1, descriptor("tenant", tenant)))
	if err != nil {
		panic(err) // It is of constants.
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
}

// lasts is for how many seconds it is measured, after one in which connections are opened, and leases had.
const lasts = 3

// load calls at a rate, and returns how long calls took that were answered, in microseconds, in order, and what the server used for one.
func load(b *testing.B, rate int, args []string, body func(tenant string) []byte, spent func() float64) (took []float64, failed int, used float64) {
	b.Helper()
	folder := b.TempDir()
	connections := 1
	if i := slices.Index(args, "-c"); i >= 0 {
		connections, _ = strconv.Atoi(args[i+1])
	}
	var all sync.WaitGroup
	before := spent()
	for i := range tenants {
		file := filepath.Join(folder, strconv.Itoa(i))
		check(b, os.WriteFile(file, body(fmt.Sprint("tenant-", i)), 0o600))
		all.Go(func() {
			text, err := exec.CommandContext(b.Context(), "h2load", append([]string{"-d", file, "-D", strconv.Itoa(1 + lasts), "--rps", strconv.Itoa(rate / tenants / connections), "--log-file", file + ".log"}, args...)...).CombinedOutput()
			if err != nil {
				b.Errorf("%v\n%s", err, text)
			}
		})
	}
	all.Wait()
	used = spent() - before
	var calls []struct{ at, took float64 }
	first := math.Inf(1)
	for i := range tenants {
		text, err := os.ReadFile(filepath.Join(folder, strconv.Itoa(i)+".log"))
		check(b, err)
		for line := range strings.Lines(string(text)) {
			var at, micros float64
			var status int
			if _, err := fmt.Sscan(line, &at, &status, &micros); err != nil || status != http.StatusOK {
				failed++
				continue
			}
			calls, first = append(calls, struct{ at, took float64 }{at, micros}), min(first, at)
		}
	}
	for _, call := range calls {
		if call.at >= first+1e6 {
			took = append(took, call.took)
		}
	}
	if slices.Sort(took); len(took) == 0 {
		b.Fatal("nothing was answered")
	}
	return took, failed, 1e6 * used / float64(len(calls)+failed)
}

// startPeer builds and starts envoyproxy/ratelimit as its README has it, on a Redis of its own, and returns where it listens.
func startPeer(b *testing.B) (address string, spent func() float64) {
	b.Helper()
	redis, folder := redistest.Start(b, redistest.Options{}), b.TempDir()
	binary := filepath.Join(folder, "ratelimit")
	for _, args := range [][]string{{"mod", "init", "peer"}, {"get", peerMain + "@" + peerVersion}, {"build", "-o", binary, peerMain}} {
		compile := exec.CommandContext(b.Context(), "go", args...)
		compile.Dir = folder
		if text, err := compile.CombinedOutput(); err != nil {
			b.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, text)
		}
	}
	check(b, os.MkdirAll(filepath.Join(folder, "ratelimit.d", "config"), 0o700))
	check(b, os.WriteFile(filepath.Join(folder, "ratelimit.d", "config", "edge.yaml"), []byte("domain: edge\ndescriptors:\n  - {key: tenant, rate_limit: {unit: second, requests_per_unit: 1000000}}\n"), 0o600))
	var ports [3]string
	for i := range ports {
		listener, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
		check(b, err)
		_, ports[i], _ = net.SplitHostPort(listener.Addr().String())
		check(b, listener.Close())
	}
	serve := exec.CommandContext(context.WithoutCancel(b.Context()), binary)
	serve.Env = append(os.Environ(), "USE_STATSD=false", "LOG_LEVEL=warn", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr(), "RUNTIME_ROOT="+folder, "RUNTIME_SUBDIRECTORY=ratelimit.d",
		"RUNTIME_WATCH_ROOT=false", "HOST=127.0.0.1", "PORT="+ports[0], "GRPC_HOST=127.0.0.1", "GRPC_PORT="+ports[1], "DEBUG_HOST=127.0.0.1", "DEBUG_PORT="+ports[2])
	check(b, serve.Start())
	b.Cleanup(func() {
		check(b, serve.Process.Kill())
		_ = serve.Wait() // It says that it was killed.
	})
	address = net.JoinHostPort("127.0.0.1", ports[1])
	client := ratelimit.NewRateLimitServiceClient(dial(b, "passthrough:///"+address))
	answer, err := client.ShouldRateLimit(within(b), asked(1, descriptor("tenant", "tenant-0")), grpc.WaitForReady(true))
	check(b, err)
	if left := answer.GetStatuses()[0].GetLimitRemaining(); left == 0 {
		b.Fatalf("it counts nothing: %v", answer)
	}
	return address, spentBy(b, serve)
}

// spentBy tells how many seconds of a processor a process has used.
func spentBy(b *testing.B, c *exec.Cmd) func() float64 {
	b.Helper()
	return func() float64 {
		process, err := procfs.NewProc(c.Process.Pid)
		check(b, err)
		stat, err := process.Stat()
		check(b, err)
		return stat.CPUTime()
	}
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
	return service, api, spentBy(b, serve)
}
