package breakers

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// FuzzStored: whatever stands in Redis where breakers and what they say are kept, it is read or is an error, and what was read can be shown.
func FuzzStored(f *testing.F) {
	meta := strings.TrimSuffix(strings.Repeat("1|", codec.MetaSize), "|")
	for _, seed := range [][2]string{
		{"m", meta},
		{"m", strings.Replace(meta, "1|1", "2|-1", 1)},
		{"c", "10000000|10|20|0.5|5|1|2|2|1000000|1000000|2000000|60000000"},
		{"c", "1|10|20|0.5|5|1|2|2|1000000|1000000|2000000|60000000"},
		{"t", "1,2,3,4,5;6,7,8,9,10"},
		{"w:one", "1|2|1|3|1,2,3,4,5"},
		{"open", "3 5"},
		{"full", ""},
		{"forced", "1"},
		{"open", ""},
		{"", ""},
		{"", " "},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		fields := map[string]string{"m": meta, "c": "10000000|10|20|0.5|5|1|2|2|1|1|2|6", name: value}
		if b, err := ParseBreaker("api", fields, 17, 1); err == nil {
			if b.Limit < store.Unlimited {
				t.Errorf("%q of %q: a limit of %d", value, name, b.Limit)
			}
		}
		if _, err := parseWord([]string{name, value, value}); err == nil && name == "" {
			t.Error("no word is a word")
		}
		_, _ = parseEvent(redis.XMessage{ID: name, Values: map[string]any{"from": name, "to": value, "at": name, "for": value, name: value}})
	})
}
