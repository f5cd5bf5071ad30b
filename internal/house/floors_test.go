package house

import "strings"

// module is the path of the house.
const module = "github.com/headgate/headgate"

// pureFloor is the highest on which there is nothing but the standard library.
const pureFloor = 1

// beside are modules of their own, in the same house.
var beside = []string{"loadtest/peers", "grpclimit", "cmd/headgate/sqlite"}

// room is a tree of packages that stands on one floor.
type room struct {
	path  string // below the module, "" for its root
	floor int
	leaf  bool // imports nobody of the house but what mayAlso says
}

// rooms is the house. Every package must be in one of these trees.
var rooms = []room{
	{path: "", floor: 5},
	{path: "admission", floor: 0},
	{path: "internal/sorted", floor: 0},
	{path: "buckets", floor: pureFloor},
	{path: "fairqueue", floor: pureFloor},
	{path: "breaker", floor: pureFloor},
	{path: "policy", floor: pureFloor},
	{path: "internal/control", floor: pureFloor},
	{path: "internal/pressure", floor: pureFloor},
	{path: "internal/load", floor: pureFloor},
	{path: "internal/anomaly", floor: pureFloor},
	{path: "internal/forecast", floor: pureFloor},
	{path: "internal/hyperloglog", floor: pureFloor},
	{path: "internal/fairness", floor: pureFloor},
	{path: "internal/trace", floor: pureFloor},
	{path: "internal/estimate", floor: pureFloor},
	{path: "internal/limitheader", floor: pureFloor},
	{path: "internal/unary", floor: 2},
	{path: "internal/keyspace", floor: 2},
	{path: "internal/callback", floor: 2},
	{path: "internal/sqldb", floor: 2},
	{path: "lua", floor: 2},
	{path: "internal/redisconn", floor: 2},
	{path: "store/redisstore", floor: 3},
	{path: "store", floor: 2},
	{path: "limiter", floor: 4},
	{path: "outbox", floor: 4},
	{path: "producer", floor: 4},
	{path: "scheduler", floor: 4},
	{path: "worker", floor: 4},
	{path: "internal/memory", floor: 3},
	{path: "internal/migrate", floor: 4},
	{path: "internal/doctor", floor: 4},
	{path: "internal/rollout", floor: 4},
	{path: "internal/shown", floor: 4},
	{path: "internal/explain", floor: 4},
	{path: "internal/tally", floor: 4},
	{path: "internal/share", floor: 4},
	{path: "internal/outage", floor: 4},
	{path: "internal/guard", floor: 4},
	{path: "internal/circuits", floor: 4},
	{path: "admin", floor: 5},
	{path: "httplimit", floor: 5},
	{path: "rls", floor: 5},
	{path: "grpclimit/rlstest", floor: 6},
	{path: "grpclimit", floor: 6},
	{path: "asynqbridge", floor: 5},
	{path: "telemetry", floor: 5},
	{path: "headgatetest", floor: 6},
	{path: "loadtest", floor: 6},
	{path: "cmd", floor: 6},
	{path: "docs", floor: 6},
	{path: "internal/redisclient", floor: 0, leaf: true},
	{path: "internal/embedded", floor: 0, leaf: true},
	{path: "internal/redistest", floor: 0, leaf: true},
	{path: "internal/dbtest", floor: 0, leaf: true},
	{path: "internal/house", floor: 0, leaf: true},
	{path: "internal/account", floor: 6},
	{path: "internal/breaks", floor: 6},
	{path: "internal/laws", floor: 6},
	{path: "internal/crash", floor: 6},
	{path: "internal/outboxtest", floor: 5},
	{path: "mirror", floor: 4},
	{path: "internal/mirrortest", floor: 5},
}

// edge is an import that the floors forbid and the house wants.
type edge struct{ from, to string }

var mayAlso = []edge{
	{"policy", "breaker"},                         // The rules of a breaker are of the policy, too.
	{"policy", "internal/control"},                // By what a limit moves is of the policy, too.
	{"policy", "internal/pressure"},               // What weighs how much in a score is of the policy, too.
	{"worker", "scheduler"},                       // A worker runs a scheduler, so that a lone worker needs nobody.
	{"internal/redisconn", "internal/keyspace"},   // A partition is known by its keys.
	{"internal/redisconn", "lua"},                 // It sends the scripts.
	{"internal/explain", "internal/shown"},        // What a tenant's eyes may see is decided in one place.
	{"internal/explain", "internal/rollout"},      // It names the rule of the policy in force.
	{"internal/shown", "internal/rollout"},        // It shows what an edit of the policy changed.
	{"producer", "internal/tally"},                // It counts as the admin API does.
	{"limiter", "internal/tally"},                 // So does this.
	{"worker", "internal/outage"},                 // Their goroutines share what they know of a Redis that is away.
	{"scheduler", "internal/outage"},              // As above.
	{"worker", "internal/guard"},                  // It takes no jobs while the process uses too much, as a server takes no calls.
	{"worker", "internal/share"},                  // Its slots go to partitions as those of a session over HTTP do.
	{"internal/outboxtest", "internal/redistest"}, // It is the tests of two modules.
	{"internal/mirrortest", "internal/redistest"}, // So is this.
	{"mirror", "outbox"},                          // Their databases are the same ones.
	{"internal/redistest", "internal/embedded"},   // Tests use its care for a child.
	{"internal/redistest", "internal/redisclient"},
	{"internal/redistest", "internal/keyspace"}, // Tests read and set what is packed.
	{"internal/embedded", "internal/redisclient"},
}

// library is a module from outside that only some rooms may import.
type library struct {
	path  string
	rooms []string
	why   string
}

var libraries = []library{
	{
		path:  "github.com/redis/go-redis",
		rooms: []string{"", "internal/redisconn", "store/redisstore", "internal/migrate", "internal/doctor", "asynqbridge", "cmd", "loadtest", "internal/redistest", "internal/embedded", "internal/redisclient"},
		why:   "Redis is reached through redisstore and its rooms alone, asynq's by the bridge; the door takes a client that its user has",
	},
	{
		path:  "github.com/rs/zerolog",
		rooms: []string{"", "internal/callback", "internal/guard", "internal/outage", "limiter", "producer", "scheduler", "worker", "admin", "asynqbridge", "loadtest", "cmd"},
		why:   "only services and those above log; return the error",
	},
}

// reserved are rooms of which only some may import anything. Tests may.
var reserved = map[string][]string{
	"internal/redistest": nil,
	"internal/house":     nil,
	"internal/embedded":  {"internal/redistest", "loadtest", "cmd"},
}

// emptyNames say nothing about what is inside.
var emptyNames = map[string]bool{
	"util": true, "utils": true, "common": true, "base": true, "helper": true, "helpers": true, "types": true, "models": true,
}

// within returns the path below the module; ok is false for a package of another module.
func within(importPath string) (path string, ok bool) {
	if importPath == module {
		return "", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// roomOf returns the room of a path below the module.
func roomOf(path string) (room, bool) {
	for _, r := range rooms {
		if path == r.path || r.path != "" && strings.HasPrefix(path, r.path+"/") {
			return r, true
		}
	}
	return room{}, false
}

// standard says whether an import path is the standard library's: its first element has no dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}
