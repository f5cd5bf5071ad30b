package codec

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// Micros writes a duration in microseconds.
func Micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

// Rate writes the tokens of a limit per microsecond.
func Rate(l admission.Limit) string {
	return strconv.FormatFloat(float64(l.Rate()), 'g', 17, 64)
}

// microsPerToken is the number of micro-tokens in a token.
const microsPerToken = 1_000_000

// Burst is the burst of a limit in micro-tokens.
func Burst(l admission.Limit) int64 { return int64(l.Burst) * microsPerToken }

// ParseNumbers reads whole numbers between blanks.
func ParseNumbers(text string) ([]int64, error) { return appendNumbers(nil, text) }

func appendNumbers(numbers []int64, text string) ([]int64, error) {
	for field := range strings.FieldsSeq(text) {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// ParseMicros reads a time in microseconds; 0 is the zero Time.
func ParseMicros(text string) (time.Time, error) {
	us, err := strconv.ParseInt(text, 10, 64)
	if err != nil || us == 0 {
		return time.Time{}, err
	}
	return time.UnixMicro(us), nil
}

// ParseQueueDemand reads weight:runnable of each class.
func ParseQueueDemand(fields []string) (q store.QueueDemand, err error) {
	for _, field := range fields {
		weight, runnable, _ := strings.Cut(field, ":")
		class := store.ClassDemand{Weight: int(redisconn.Whole(weight))}
		if class.Runnable, err = strconv.ParseFloat(runnable, 64); err != nil {
			return nil, err
		}
		q = append(q, class)
	}
	return q, nil
}

// Thousandths writes a score of 0 to 1.
func Thousandths(score float64) string { return strconv.Itoa(int(math.Round(score * 1000))) }
