package redistest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// CommandStat is what a server has had of one command since it started, or since CONFIG RESETSTAT.
type CommandStat struct {
	// Calls is how often it was carried out, Rejected how often it was not, and Micros how long it took in all.
	Calls, Rejected int64
	Micros          float64
}

// CommandStats returns what a server has had of each command, by name ("config|resetstat"), those in scripts included. A command that it never had
// is not there, which is a zero CommandStat.
func CommandStats(tb testing.TB, client redis.Cmdable) map[string]CommandStat {
	tb.Helper()
	stats := map[string]CommandStat{}
	for name, value := range infoOf(tb, client, "commandstats") {
		name, found := strings.CutPrefix(name, "cmdstat_")
		if !found {
			continue
		}
		var one CommandStat
		var each float64
		if _, err := fmt.Sscanf(value, "calls=%d,usec=%f,usec_per_call=%f,rejected_calls=%d", &one.Calls, &one.Micros, &each, &one.Rejected); err != nil {
			tb.Fatalf("%s of commandstats: %q: %v", name, value, err)
		}
		stats[name] = one
	}
	return stats
}

// CommandCalls returns how many commands a server has carried out, those in scripts included, but for some by name.
func CommandCalls(tb testing.TB, client redis.Cmdable, without ...string) (calls int64) {
	tb.Helper()
	stats := CommandStats(tb, client)
	for _, name := range without {
		delete(stats, name)
	}
	for _, stat := range stats {
		calls += stat.Calls
	}
	return calls
}

// Processor returns the time of the processor that a server's main thread has taken, which carries commands out, and reads and writes sockets.
// Unlike the durations of commandstats it does not grow while other processes have the processor.
func Processor(tb testing.TB, client redis.Cmdable) (took time.Duration) {
	tb.Helper()
	info := infoOf(tb, client, "cpu")
	for _, field := range []string{"used_cpu_sys_main_thread", "used_cpu_user_main_thread"} {
		seconds, err := strconv.ParseFloat(info[field], 64)
		if err != nil {
			tb.Fatalf("%s: %q: %v", field, info[field], err)
		}
		took += time.Duration(seconds * float64(time.Second))
	}
	return took
}

// infoOf returns the fields of a section of INFO.
func infoOf(tb testing.TB, client redis.Cmdable, section string) map[string]string {
	tb.Helper()
	text, err := client.Info(tb.Context(), section).Result()
	if err != nil {
		tb.Fatalf("info %s: %v", section, err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			fields[name] = value
		}
	}
	return fields
}
