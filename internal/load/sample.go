package load

import (
	"cmp"
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
//
//nolint:recvcheck // It is a plain value when it is complete.
type Sample struct {
	Use

	// Queues are those that it serves, also while nothing of them runs.
	Queues map[string]Runs
	// Downstreams are those that it calls for them, by their services, up to MaxDownstreams: of which something runs, or ran in the last minute.
	Downstreams map[string]Runs
}

// MaxDownstreams is of how many downstreams a worker tells.
const MaxDownstreams = 200

// sampleJSON is the text of a Sample. A queue has what runs, and what ended, failed, took in microseconds, then buckets with their counts; of its waits
// it has buckets with their counts.
type sampleJSON struct {
	CPU    float64            `json:"c"`
	Memory float64            `json:"m"`
	Queues map[string][]int64 `json:"q"`
	Waits  map[string][]int64 `json:"w,omitempty"`
	// Downstreams are as Queues, CallWaits as Waits, of jobs that call them.
	Downstreams map[string][]int64 `json:"d,omitempty"`
	CallWaits   map[string][]int64 `json:"v,omitempty"`
}

// Text is what Parse reads.
func (s Sample) Text() string {
	wire := sampleJSON{CPU: rounded(s.CPU), Memory: rounded(s.Memory), Queues: make(map[string][]int64, len(s.Queues))}
	for queue, r := range s.Queues {
		wire.Queues[queue] = r.row()
		r.waited.tell(&wire.Waits, queue)
	}
	for _, name := range s.busiestDownstreams() {
		if wire.Downstreams == nil {
			wire.Downstreams = map[string][]int64{}
		}
		runs := s.Downstreams[name]
		wire.Downstreams[name] = runs.row()
		runs.waited.tell(&wire.CallWaits, name)
	}
	text, _ := json.Marshal(wire) // Its numbers are finite.
	return string(text)
}

// tell notes waits under a name, if there are any.
func (h histogram) tell(in *map[string][]int64, name string) {
	if len(h) == 0 {
		return
	}
	if *in == nil {
		*in = map[string][]int64{}
	}
	(*in)[name] = h.appendTo(nil)
}

// waitsOf reads what tell has noted.
func waitsOf(row []int64) (histogram, error) {
	if len(row)%2 != 0 || len(row) > 0 && slices.Min(row) < 0 {
		return nil, errRow
	}
	return histogramOf(row), nil
}

// busiestDownstreams are those of which most runs and ran.
func (s *Sample) busiestDownstreams() []string {
	names := slices.Sorted(maps.Keys(s.Downstreams))
	slices.SortStableFunc(names, func(a, b string) int {
		of, other := s.Downstreams[a], s.Downstreams[b]
		return cmp.Compare(other.Running+other.Ended, of.Running+of.Ended)
	})
	return names[:min(len(names), MaxDownstreams)]
}

// row is what runsOf reads.
func (r *Runs) row() []int64 {
	return r.took.appendTo([]int64{r.Running, r.Ended, r.Failed, r.Took.Microseconds()})
}

func runsOf(row []int64) (Runs, error) {
	if len(row) < rowHead || len(row)%2 != 0 || slices.Min(row) < 0 {
		return Runs{}, errRow
	}
	return Runs{Running: row[0], Ended: row[1], Failed: row[2], Took: time.Duration(row[3]) * time.Microsecond, took: histogramOf(row[rowHead:])}, nil
}

// appendTo appends buckets with their counts to a row.
func (h histogram) appendTo(row []int64) []int64 {
	for _, bucket := range slices.Sorted(maps.Keys(h)) {
		row = append(row, int64(bucket), h[bucket])
	}
	return row
}

// histogramOf reads what appendTo has appended.
func histogramOf(row []int64) (h histogram) {
	for at := 0; at < len(row); at += 2 {
		h.add(int(row[at]), row[at+1])
	}
	return h
}

// rounded leaves four digits; what is no number is not known.
func rounded(x float64) float64 {
	if !(x >= 0) || math.IsInf(x, 1) {
		return -1
	}
	return math.Round(x*1e4) / 1e4
}

var errRow = errors.New("its numbers are incomplete, or below 0")

// rowHead is how many numbers a row has before its buckets.
const rowHead = 4

// Parse reads a Text.
func Parse(text string) (Sample, error) {
	var wire sampleJSON
	if err := json.Unmarshal([]byte(text), &wire); err != nil {
		return Sample{}, fmt.Errorf("read load: %w", err)
	}
	s := Sample{Use: Use{CPU: wire.CPU, Memory: wire.Memory}, Queues: make(map[string]Runs, len(wire.Queues))}
	for queue, row := range wire.Queues {
		runs, err := runsOf(row)
		if err != nil {
			return Sample{}, fmt.Errorf("read load of queue %s: %w", queue, err)
		}
		if runs.waited, err = waitsOf(wire.Waits[queue]); err != nil {
			return Sample{}, fmt.Errorf("read waits of queue %s: %w", queue, err)
		}
		s.Queues[queue] = runs
	}
	for name, row := range wire.Downstreams {
		runs, err := runsOf(row)
		if err != nil {
			return Sample{}, fmt.Errorf("read load of downstream %s: %w", name, err)
		}
		if runs.waited, err = waitsOf(wire.CallWaits[name]); err != nil {
			return Sample{}, fmt.Errorf("read waits of downstream %s: %w", name, err)
		}
		if s.Downstreams == nil {
			s.Downstreams = map[string]Runs{}
		}
		s.Downstreams[name] = runs
	}
	return s, nil
}

// ParseAll reads the texts of what workers told. One that cannot be read, of a release to come, is left out.
func ParseAll[T any](told []T, text func(*T) string) []Sample {
	samples := make([]Sample, 0, len(told))
	for i := range told {
		if s, err := Parse(text(&told[i])); err == nil {
			samples = append(samples, s)
		}
	}
	return samples
}
