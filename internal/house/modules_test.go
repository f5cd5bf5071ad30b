package house

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// linked is a module from outside that packages of the SDK link.
type linked struct {
	path string
	why  string
	by   []string // packages below the module that link it, sorted
}

// The SDK, in groups that link the same.
var (
	redisRooms   = []string{"store/redisstore"}
	storeRooms   = []string{"httplimit", "limiter", "mirror", "producer", "scheduler", "store", "store/redisstore", "telemetry", "worker"}
	cpuRooms     = []string{"httplimit", "limiter", "producer", "scheduler", "store/redisstore", "telemetry", "worker"}
	loggingRooms = []string{"httplimit", "limiter", "producer", "scheduler", "telemetry", "worker"}
	metricRooms  = []string{"telemetry"}
)

// sdk are the packages that other people's programs import, but for the root, which may link what the services link.
var sdk = []string{"admission", "breaker", "buckets", "httplimit", "limiter", "lua", "mirror", "outbox", "policy", "producer", "scheduler", "store", "store/redisstore", "telemetry", "worker"}

// services are the packages of which the root's door is made.
var services = []string{"limiter", "lua", "policy", "producer", "scheduler", "store", "store/redisstore", "worker"}

// linkedModules is all that the SDK links, each with its reason; a module that is not here is a fault, and so is one here
// that a package does not link any more. Whoever adds one adds it to every program that uses Headgate.
var linkedModules = []linked{
	{"github.com/redis/go-redis/v9", "the client of Redis", redisRooms},
	{"github.com/cespare/xxhash/v2", "go-redis finds the slot of a shard with it; client_golang hashes labels", []string{"store/redisstore", "telemetry"}},
	{"go.uber.org/atomic", "go-redis counts its connections with it", redisRooms},
	{"github.com/google/uuid", "ids of jobs are UUIDs of version 7, and the ids of others are read strictly", append([]string{"outbox"}, storeRooms...)},
	{"github.com/rs/zerolog", "the log of services, which whoever runs them hands in", loggingRooms},
	{"github.com/mattn/go-colorable", "zerolog's console writer", loggingRooms},
	{"github.com/mattn/go-isatty", "go-colorable asks it for a terminal", loggingRooms},
	{"golang.org/x/sys", "go-redis asks it for the size of a cache line, go-isatty for a terminal", cpuRooms},
	{"github.com/robfig/cron/v3", "schedules of periodic jobs: what cron lines mean is not for us to write again", []string{"producer", "telemetry"}},
	{"github.com/puzpuzpuz/xsync/v4", "the maps of a limiter: docs/adr/011-written-here.md has what sync.Map takes", []string{"httplimit", "limiter", "telemetry"}},
	{"github.com/prometheus/client_golang", "metrics", metricRooms},
	{"github.com/prometheus/client_model", "client_golang's", metricRooms},
	{"github.com/prometheus/common", "client_golang's", metricRooms},
	{"github.com/prometheus/procfs", "how a guard measures a process, and client_golang's", []string{"telemetry", "worker"}},
	{"github.com/beorn7/perks", "client_golang's quantiles", metricRooms},
	{"github.com/munnerz/goautoneg", "client_golang's", metricRooms},
	{"google.golang.org/protobuf", "client_model's", metricRooms},
	{"go.opentelemetry.io/otel", "traces", []string{"telemetry"}},
	{"go.opentelemetry.io/otel/trace", "traces", []string{"telemetry"}},
}

// TestSDKLinksFewModules holds the list of what a program gets that imports Headgate. Its own tests, the binary, the bridge
// and the load test may link what they like.
func TestSDKLinksFewModules(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	openFolders(t, root)
	modules := modulesOf(t, root)
	for _, path := range sdk {
		var want []string
		for _, m := range linkedModules {
			if slices.Contains(m.by, path) {
				want = append(want, m.path)
			}
		}
		for _, m := range modules[path] {
			if !slices.Contains(want, m) {
				t.Errorf("package %s links %s; if every program that uses it is to have that, say why in linkedModules", path, m)
			}
		}
		for _, m := range want {
			if !slices.Contains(modules[path], m) {
				t.Errorf("package %s does not link %s any more: take it off linkedModules", path, m)
			}
		}
	}
	for _, m := range modules[""] {
		if !slices.ContainsFunc(services, func(path string) bool { return slices.Contains(modules[path], m) }) {
			t.Errorf("the root links %s, which no service does: what only some programs need is behind a package of its own", m)
		}
	}
}

// modulesOf returns the modules that each package of the SDK and the root link on Linux, without Headgate's own.
func modulesOf(t *testing.T, root string) map[string][]string {
	t.Helper()
	arguments := []string{"list", "-deps", "-json=ImportPath,Deps,Module", "."}
	for _, path := range sdk {
		arguments = append(arguments, "./"+path)
	}
	command := exec.CommandContext(t.Context(), "go", arguments...)
	command.Dir = root
	command.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "GOWORK=off")
	output, err := command.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	type listed struct {
		ImportPath string
		Deps       []string
		Module     *struct{ Path string }
	}
	modules, deps := map[string]string{}, map[string][]string{} // by import path, by path below the module
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var p listed
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("read go list: %v", err)
		}
		if p.Module != nil && p.Module.Path != module {
			modules[p.ImportPath] = p.Module.Path
		}
		if path, ok := within(p.ImportPath); ok {
			deps[path] = p.Deps
		}
	}
	found := map[string][]string{}
	for path, all := range deps {
		for _, dep := range all {
			if m := modules[dep]; m != "" && !slices.Contains(found[path], m) {
				found[path] = append(found[path], m)
			}
		}
	}
	for _, path := range sdk {
		if _, ok := deps[path]; !ok {
			t.Fatalf("go list does not know package %s", path)
		}
	}
	return found
}
