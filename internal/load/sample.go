package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Use is which part of its processors and of its memory a process uses, or its cgroup where that has a limit: 1 is all. Negative is
// not known.
type Use struct{ CPU, Memory float64 }

// Unknown is the Use of a process that cannot be measured.
var Unknown = Use{CPU: -1, Memory: -1}

// Sample is what a worker tells of itself.
type Sample struct {
	Use

	// Queues are those that it serves, also while nothing of them runs.
	Queues map[string]Runs
}

// sampleJSON is the text of a Sample. A queue has what runs, and what ended, failed, took in microseconds, then buckets with their counts.
type sampleJSON struct {
	CPU    float64            `json:"c"`
	Memory float64            `json:"m"`
	Queues map[string][]int64 `json:"q"`
}

// Text is what Parse reads.
func (s Sample) Text() string {
	wire := sampleJSON{CPU: rounded(s.CPU), Memory: rounded(s.Memory), Queues: make(map[string][]int64, len(s.Queues))}
	for queue, r := range s.Queues {
		row := []int64{r.Running, r.Ended, r.Failed, r.Took.Microseconds()}
		for _, bucket := range slices.Sorted(maps.Keys(r.buckets)) {
			row = append(row, int64(bucket), r.buckets[bucket])
		}
		wire.Queues[queue] = row
	}
	text, _ := json.Marshal(wire) // Its numbers are finite.
	return string(text)
}

// rounded leaves four digits; what is no number is not known.
func rounded(x float64) float64 {
	if !(x >= 0) || math.IsInf(x, 1) {
		return -1
	}
	return math.Round(x*1e4) / 1e4
}

var errRow = errors.New("a queue's numbers are incomplete, or below 0")

// rowHead is how many numbers a queue has before its buckets.
const rowHead = 4

// Parse reads a Text.
func Parse(text string) (Sample, error) {
	var wire sampleJSON
	if err := json.Unmarshal([]byte(text), &wire); err != nil {
		return Sample{}, fmt.Errorf("read load: %w", err)
	}
	s := Sample{Use: Use{CPU: wire.CPU, Memory: wire.Memory}, Queues: make(map[string]Runs, len(wire.Queues))}
	for queue, row := range wire.Queues {
		if len(row) < rowHead || len(row)%2 != 0 || slices.Min(row) < 0 {
			return Sample{}, fmt.Errorf("read load of queue %s: %w", queue, errRow)
		}
		r := Runs{Running: row[0], Ended: row[1], Failed: row[2], Took: time.Duration(row[3]) * time.Microsecond}
		for at := rowHead; at < len(row); at += 2 {
			if r.buckets == nil {
				r.buckets = map[int]int64{}
			}
			r.buckets[int(row[at])] += row[at+1]
		}
		s.Queues[queue] = r
	}
	return s, nil
}
