package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/headgate/headgate/admission"
)

// DownstreamHistory is under which name the history of a downstream stands beside those of queues, of which no name has a space.
func DownstreamHistory(service string) string { return "downstream " + service }

// WholeHistory is under which name that of the whole deployment stands: a Whole each.
const WholeHistory = "the whole"

// How many numbers a text of figures has: with those that each release tells, of a downstream, and of a queue.
const (
	leastFigures      = 7
	downstreamFigures = 8
	queueFigures      = 10
)

// Text is what ParseFigures reads, with times in whole microseconds, but Wait in milliseconds, rounded up: of most queues the text is up to 64 bytes, up to which
// Redis keeps few of them without an entry each. What only a queue has is left out where nobody knows any of it, as of each downstream.
func (f Figures) Text() string {
	all := [queueFigures]float64{
		rounded(f.CPU), rounded(f.Memory), float64(f.Depth), float64(f.Running), rounded(f.ErrorRate), micros(f.Average), micros(f.P95), micros(f.WaitP95),
		-1, float64(f.Level),
	}
	if f.Wait >= 0 {
		all[downstreamFigures] = math.Ceil(float64(f.Wait) / float64(time.Millisecond))
	}
	told := all[:]
	if f.Wait < 0 && f.Level == 0 {
		told = all[:downstreamFigures]
	}
	text, _ := json.Marshal(told) // Its numbers are finite.
	return string(text)
}

func micros(d time.Duration) float64 {
	if d < 0 {
		return -1
	}
	return float64(d.Microseconds())
}

var errFigures = errors.New("there are not as many numbers as figures")

// ParseFigures reads a Text. What a release did not tell is not known, and what one to come tells beyond it is left out.
func ParseFigures(text string) (Figures, error) {
	told, err := numbers(text, leastFigures)
	if err != nil {
		return Figures{}, fmt.Errorf("read figures: %w", err)
	}
	n := [queueFigures]float64{leastFigures: -1, downstreamFigures: -1}
	copy(n[:], told)
	took := func(n float64, unit time.Duration) time.Duration {
		if n < 0 {
			return -1
		}
		return time.Duration(n) * unit
	}
	return Figures{
		Use: Use{CPU: n[0], Memory: n[1]}, Depth: int64(n[2]), Running: int64(n[3]), ErrorRate: n[4],
		Average: took(n[5], time.Microsecond), P95: took(n[6], time.Microsecond), WaitP95: took(n[7], time.Microsecond),
		Wait: took(n[8], time.Millisecond), Level: admission.PressureLevel(n[9]),
	}, nil
}

// Whole is what is told of a deployment, not of one of its services. Negative is not known.
type Whole struct {
	// RedisMemory is which part of its maxmemory Redis uses, of several the one that uses most of it.
	RedisMemory float64
}

// Text is what ParseWhole reads.
func (w Whole) Text() string {
	text, _ := json.Marshal([]float64{rounded(w.RedisMemory)}) // Its number is finite.
	return string(text)
}

// ParseWhole reads a Text. What one of a release to come tells beyond it is left out.
func ParseWhole(text string) (Whole, error) {
	n, err := numbers(text, 1)
	if err != nil {
		return Whole{}, fmt.Errorf("read what is told of all: %w", err)
	}
	return Whole{RedisMemory: n[0]}, nil
}

// numbers reads a list of them, at least so many.
func numbers(text string, least int) (n []float64, err error) {
	if err = json.Unmarshal([]byte(text), &n); err == nil && len(n) < least {
		err = errFigures
	}
	return n, err
}
