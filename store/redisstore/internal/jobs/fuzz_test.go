package jobs

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// FuzzStored: whatever stands in Redis where entries of streams are kept, it is read or is an error, and what was read can be shown.
func FuzzStored(f *testing.F) {
	for _, seed := range [][2]string{
		{"1-0", "5"},
		{"", ""},
		{"", " "},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		if period := PeriodOf(redis.XMessage{Values: map[string]any{"p": value}}); period > 0 && value == "" {
			t.Errorf("period %d of nothing", period)
		}
	})
}
