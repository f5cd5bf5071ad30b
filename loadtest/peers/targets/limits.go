package main

import (
	"fmt"
	"io"
	"strings"
)

// algorithm is a row of the table of the algorithms of limits.
type algorithm struct {
	of, library string
	// most is what its own rule lets through of 100 in a window, in the longest window.
	most string
}

// algorithms are the benchmarks of package limits, by what they are called there.
var algorithms = []algorithm{
	{"token-bucket", "headgate-exact", "200"},
	{"token-bucket", "headgate-leased", "250"}, // Half a burst may be on lease.
	{"token-bucket", "redis_rate", "200"},
	{"token-bucket", "throttled", "200"},
	{"token-bucket", "gubernator-leaky", "200"},
	{"fixed-window", "headgate", "200"},
	{"fixed-window", "ulule", "200"},
	{"fixed-window", "gubernator-token", "200"},
	{"sliding-window", "headgate", "100"},
	{"sliding-window", "fiber", "100"},
	{"sliding-log", "headgate", "100"},
	{"leaky-wait", "headgate", "101"},
	{"leaky-wait", "redis_rate-loop", "101"},
}

// writeLimits prints the algorithms of limits that were measured.
func writeLimits(to io.Writer, found measured) error {
	var text strings.Builder
	for _, a := range algorithms {
		row := []string{strings.ReplaceAll(a.of, "-", " ") + ", " + a.library}
		speed, exactness := "Limits/speed/"+a.of+"/"+a.library, "Limits/exactness/"+a.of+"/"+a.library
		if len(found[figure{speed, "checks/s"}]) == 0 {
			continue
		}
		if text.Len() == 0 {
			text.WriteString("\n| algorithm | checks/s, 64 callers | µs of Redis a check | most let in of 100 in any window | its rule | let in, of what a sliding log could | failed |\n" +
				"| --- | --- | --- | --- | --- | --- | --- |\n")
		}
		for _, f := range []figure{{speed, "checks/s"}, {speed, "redis-us/check"}, {exactness, "most-of-100"}} {
			row = append(row, spreadOf(found[f]).String())
		}
		row = append(row, a.most)
		for _, f := range []figure{{exactness, "of-possible"}, {exactness, "failed"}} {
			row = append(row, spreadOf(found[f]).String())
		}
		fmt.Fprintf(&text, "| %s |\n", strings.Join(row, " | "))
	}
	_, err := io.WriteString(to, text.String())
	return err
}
