package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/guard"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// get returns what is at a URL, with its status and when to ask again.
func get(t *testing.T, url string) (status int, after, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	must(t, err)
	response, err := http.DefaultClient.Do(r)
	must(t, err)
	text, err := io.ReadAll(response.Body)
	must(t, err)
	must(t, response.Body.Close())
	return response.StatusCode, response.Header.Get("Retry-After"), string(text)
}

// tight are options by which every process uses too much.
var tight = []string{"--set", "guard.max_goroutines=1", "--set", "guard.interval=100ms"}

// TestAWorkerOverItsLimitTakesNothing, says so in its log and its metrics, and ends as told.
func TestAWorkerOverItsLimitTakesNothing(t *testing.T) {
	t.Parallel()
	d, log := newDeployment(t), &lockedBuffer{}
	stop := d.start(log, "worker", append(tight, "--queue", "q", "--metrics", "127.0.0.1:0", "--exec", "true")...)
	awaitLog(t, log.String, "no new work is taken", 1)
	d.enqueue("good")
	url := regexp.MustCompile(`http://[^"]*/metrics`).FindString(log.String())
	_, _, metrics := get(t, url)
	for _, want := range []string{`headgate_guard_state{kind="goroutines"} 2`, `headgate_guard_violations_total{kind="goroutines"} 1`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s", want)
		}
	}
	if code := stop(); code != 0 {
		t.Errorf("it ends with %d", code)
	}
	d.await("the job", func(c store.Census) bool { return c.Waiting == 1 })
	checkLog(t, log.String())

	worker := d.work("--set", "guard.max_goroutines=1000000", "--set", "guard.max_sched_latency=1m", "--exec", "true")
	if c := d.idle(); c.Left["completed"] != 1 {
		t.Errorf("below its limits: %+v", c)
	}
	worker()
}

// TestAServerOverItsLimitTakesNoCalls but for those that look after it.
func TestAServerOverItsLimitTakesNoCalls(t *testing.T) {
	t.Parallel()
	log := &lockedBuffer{}
	address, stop := startServe(t, log, append(tight, "--insecure-no-auth")...)
	awaitLog(t, log.String, "no new work is taken", 1)
	if status, after, body := get(t, address+"/api/v1/queues"); status != http.StatusServiceUnavailable || after != "1" || !strings.Contains(body, "urn:headgate:problem:busy") {
		t.Errorf("%d, again after %q: %s", status, after, body)
	}
	if status, _, body := get(t, address+"/metrics"); status != http.StatusOK || !strings.Contains(body, `headgate_guard_state{kind="goroutines"} 2`) {
		t.Errorf("%d: %s", status, body)
	}
	if status, _, _ := get(t, address+"/api/v1/health/ready"); status != http.StatusOK {
		t.Errorf("ready: %d", status)
	}
	stop()
}

// TestAWorkerCountsTheMemoryOfItsCommands has a job whose command really takes 300 MB, more than the worker may have together with it.
// The next job waits until that has ended, and nobody has ended it before its time.
func TestAWorkerCountsTheMemoryOfItsCommands(t *testing.T) {
	t.Parallel()
	d, log := newDeployment(t), &lockedBuffer{}
	free := filepath.Join(t.TempDir(), "free")
	args := append([]string{"worker"}, d.where...)
	args = append(args, "--queue", "q", "--concurrency", "2", "--log", "debug", "--set", "guard.max_memory=262144000", "--set", "guard.interval=100ms", "--exec",
		"sh", "-c", `test "$HEADGATE_TYPE" = eat || exit 0; { head -c 314572800 /dev/zero; until test -e "$1"; do sleep 0.05; done; } | tail -n 1 > /dev/null`, "sh", free)
	command := process(t, log, args...)
	d.enqueue("eat")
	awaitLog(t, log.String, "no new work is taken", 1)
	slots := func(store.Census) bool {
		workers, err := redistest.Shared(t).Client(t).HVals(t.Context(), redisstore.Keys(d.store).Workers()).Result()
		return err == nil && len(workers) == 1 && strings.Split(workers[0], "|")[1] == "1"
	}
	d.await("the free slot to be given up", slots)
	d.enqueue("good")
	if c := d.await("it to wait", func(c store.Census) bool { return c.Waiting == 1 }); c.Left["completed"] != 0 {
		t.Errorf("got %+v", c)
	}
	must(t, os.WriteFile(free, nil, 0o600))
	if c := d.idle(); c.Left["completed"] != 2 {
		t.Errorf("got %+v", c)
	}
	must(t, command.Process.Signal(syscall.SIGTERM))
	must(t, command.Wait())
	text := log.String()
	again, ran := strings.Index(text, "new work is taken again"), regexp.MustCompile(`"job":"good".*"outcome":"completed"`).FindStringIndex(text)
	if again < 0 || ran == nil || ran[0] < again || !regexp.MustCompile(`memory usage \d\d\d\.\dMB exceeds limit 250\.0MB`).MatchString(text) {
		t.Error(text)
	}
	checkLog(t, text)
}

// TestALimitOfTheCgroupIsCheckedWhereTheProcessRuns: a file may be checked on another machine, so that is a warning of config check; a worker
// and a server do not start, and name the option. Where the cgroup of this process has a limit nothing is wrong.
func TestALimitOfTheCgroupIsCheckedWhereTheProcessRuns(t *testing.T) {
	t.Parallel()
	measured, err := guard.NewSampler().Sample(time.Now())
	must(t, err)
	if measured.CgroupMemoryLimit > 0 {
		t.Skip("the cgroup of this process has a limit of memory")
	}
	const want = "invalid %sguard.max_cgroup_memory 0.5: allowed is 0 here: the cgroup of this process has no limit of memory"
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	must(t, os.WriteFile(file, []byte("guard: {max_cgroup_memory: 0.5}"), 0o600))
	out := runHeadgate(t.Context(), "config", "check", file)
	if out.code != cli.ExitOK || !strings.Contains(out.stderr, "warning: here no worker and no server would start: "+fmt.Sprintf(want, "")) {
		t.Errorf("exit code %d: %s", out.code, out.stderr)
	}
	for _, line := range []string{"worker --redis 127.0.0.1:1 --queue q --set guard.max_cgroup_memory=0.5 --exec true", "serve --redis 127.0.0.1:1 --insecure-no-auth --set guard.max_cgroup_memory=0.5"} {
		if out := runHeadgate(t.Context(), strings.Fields(line)...); out.code != cli.ExitFailure || !strings.Contains(out.stderr, fmt.Sprintf(want, "--set ")) {
			t.Errorf("%s: exit code %d: %s", line, out.code, out.stderr)
		}
	}
}
