package crash_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// otherVariable names the binary of these tests of another release; `make upgrade` builds it from an older commit.
const otherVariable = "HEADGATE_CRASH_OTHER"

// otherRelease returns a binary of these tests whose scripts have other texts and whose data is a version newer, so that it
// stands for the next release. It is built from the same sources with two files replaced, since a clone may have no history.
func otherRelease(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replaced := map[string]string{}
	replace := func(path, old, with string) {
		text, err := os.ReadFile(cmp.Or(replaced[filepath.Join(root, path)], filepath.Join(root, path)))
		if err != nil {
			t.Fatal(err)
		}
		changed := bytes.Replace(text, []byte(old), []byte(with), 1)
		if bytes.Equal(changed, text) {
			t.Fatalf("%s has no %q", path, old)
		}
		copied := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(copied, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		replaced[filepath.Join(root, path)] = copied
	}
	replace("lua/scripts/library.lua", "local KEY_NAMES", "local NEXT_RELEASE = true\nlocal KEY_NAMES")
	next := strconv.Itoa(redisstore.DataVersion + 1)
	replace("internal/redisconn/data.go", "DataVersion = "+strconv.Itoa(redisstore.DataVersion), "DataVersion = "+next)
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	list, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "other.test")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-trimpath", "-ldflags=-s -w", "-overlay", list, "-gcflags=github.com/redis/go-redis/v9=-l", "-gcflags=github.com/headgate/headgate/...=-dwarf=false", "-o", binary, ".")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the other release: %v\n%s", err, said)
	}
	return binary
}

// scripts returns how many scripts Redis knows, as functions and as texts.
func (s *storm) scripts() int {
	s.Helper()
	n := 0
	for line := range strings.Lines(s.client.Info(s.Context(), "memory").Val()) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ":")
		if known, _ := strconv.Atoi(text); name == "number_of_functions" || name == "number_of_cached_scripts" {
			n += known
		}
	}
	return n
}

// TestTwoReleases has another release beside this one. With HEADGATE_CRASH_OTHER that is an older commit.
func TestTwoReleases(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a binary")
	}
	t.Parallel()
	older := os.Getenv(otherVariable)
	if older != "" {
		t.Run("run side by side", func(t *testing.T) { runSideBySide(t, older, redisconn.TextData) })
		return
	}
	newer := otherRelease(t)
	t.Run("run side by side", func(t *testing.T) { runSideBySide(t, newer, redisstore.DataVersion) })
	t.Run("a downgrade is refused with words", func(t *testing.T) { refuseDowngrade(t, newer) })
}

// runSideBySide upgrades a deployment under load, process by process, and takes it back: meanwhile there are producers,
// schedulers and workers of both releases, on the same jobs, and laws L3, L4 and L5 hold in the end. Each time jobs of both are
// dammed up, so that what one release has put into lanes the other takes out. The data has the version of who began it.
func runSideBySide(t *testing.T, other string, data int) {
	t.Helper()
	s := newStormOn(t, "everysec", data)
	s.gather(2, 2, 2)
	s.accepts(100)
	alone := s.scripts()
	for _, binary := range []string{other, ""} {
		for _, a := range s.actors {
			s.leave(a)
			a.binary = binary
			s.start(a)
			s.dams(100)
		}
	}
	if both := s.scripts(); both < alone+2 {
		t.Errorf("Redis knows %d scripts, and knew %d of one release: the other one ran none", both, alone)
	}
	s.calm()
	found := s.audit()
	found.print(s)
	found.assert(s)
}

// dams lets so many more jobs in while all queues are paused, and then out.
func (s *storm) dams(jobs int64) {
	s.Helper()
	for _, q := range stormQueues {
		_, err := s.store.Pause(s.Context(), store.QueueGate(q.Queue), 0, store.Intervention{Reason: "an upgrade"})
		s.check(err)
	}
	s.accepts(jobs)
	before := s.census()
	for _, q := range stormQueues {
		_, err := s.store.Unpause(s.Context(), store.QueueGate(q.Queue), store.Intervention{})
		s.check(err)
	}
	left := func(c store.Census) int64 { return c.Accepted - c.Live + c.Dead }
	s.until(fmt.Sprintf("%d jobs leave", before.Waiting), func() bool { return left(s.census())-left(before) >= before.Waiting })
}

func (s *storm) census() store.Census {
	s.Helper()
	census, err := s.store.Census(s.Context())
	s.check(err)
	return census
}

// accepts waits until so many more jobs are in.
func (s *storm) accepts(more int64) {
	s.Helper()
	end := s.census().Accepted + more
	s.until(fmt.Sprintf("%d more jobs", more), func() bool { return s.census().Accepted >= end })
}

func (s *storm) until(what string, is func() bool) {
	s.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); s.pause(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("not in a minute: %s", what)
		}
	}
}

// refuseDowngrade: a process that is older than the data ends and says why, and changes nothing.
func refuseDowngrade(t *testing.T, newest string) {
	t.Helper()
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	other := newCast(t, server)
	newer := &actor{role: schedulerRole, binary: newest}
	other.actors = append(other.actors, newer)
	other.start(newer)
	state := "hg{0}:state"
	for deadline := time.Now().Add(time.Minute); client.HGet(t.Context(), state, "data").Val() != strconv.Itoa(redisstore.DataVersion+1); other.pause(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the newer release has not begun")
		}
	}
	other.leave(newer)
	before := client.HGetAll(t.Context(), state).Val()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // One that is not refused runs on.
	defer cancel()
	older := exec.CommandContext(ctx, own) //nolint:gosec // It is this binary.
	older.Env = append(os.Environ(), roleVariable+"="+schedulerRole, numberVariable+"=1", bookVariable+"="+other.book(schedulerRole, 1), addrVariable+"="+server.Addr())
	if _, err := older.StdinPipe(); err != nil { // A role ends with its stdin.
		t.Fatal(err)
	}
	said, err := older.CombinedOutput()
	if err == nil || !strings.Contains(string(said), admission.ErrNewerData.Error()) {
		t.Errorf("%v, by time: %t: %s", err, ctx.Err() != nil, said)
	}
	if after := client.HGetAll(t.Context(), state).Val(); len(after) != len(before) || after["data"] != before["data"] {
		t.Errorf("it left %v of %v", after, before)
	}
}
