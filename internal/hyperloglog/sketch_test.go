package hyperloglog

import (
	"math"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestASketchIsThatOfRedis: told only of the names that make a difference, a HyperLogLog of Redis counts as one that is told of all, and as the
// Sketch, within 1 %: of a million names, too, which Redis keeps in 12 KiB.
func TestASketchIsThatOfRedis(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Shared(t).Client(t), redistest.Prefix(t)
	all, some := prefix+"{0}:all", prefix+"{0}:some"
	add := func(key string, names []any) {
		t.Helper()
		if len(names) == 0 {
			return
		}
		if err := client.PFAdd(t.Context(), key, names...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var s Sketch
	told, n := 0, 0
	for _, until := range []int{1, 10, 1000, 50_000, 1_000_000} {
		for n < until {
			var every, those []any
			for ; n < until && len(every) < 1000; n++ {
				name := "tenant-:"[:n%8] + strconv.Itoa(n) // Lengths that end in each place of a word.
				every = append(every, name)
				if s.Add(name) {
					those = append(those, name)
				}
				if s.Add(name) {
					t.Fatal("the same name makes a difference again")
				}
			}
			told += len(those)
			add(all, every)
			add(some, those)
		}
		ofAll, ofSome := client.PFCount(t.Context(), all).Val(), client.PFCount(t.Context(), some).Val()
		if got := s.Count(); got != ofAll || got != ofSome || math.Abs(float64(got)/float64(n)-1) > 0.01 {
			t.Errorf("%d names: %d, Redis %d, and %d of those that made a difference", n, got, ofAll, ofSome)
		}
	}
	t.Logf("of %d names Redis is told of %d; %d bytes there", n, told, size(t, client, some))
	if told > n/8 || size(t, client, some) > 12*1024+512 {
		t.Errorf("told of %d", told)
	}
}

func size(t *testing.T, client redis.UniversalClient, key string) int64 {
	t.Helper()
	return client.StrLen(t.Context(), key).Val()
}

func TestAnEmptySketchHasNone(t *testing.T) {
	t.Parallel()
	if n := new(Sketch).Count(); n != 0 {
		t.Errorf("%d", n)
	}
}

// BenchmarkAdd adds names of 36 bytes that are there.
func BenchmarkAdd(b *testing.B) {
	var s Sketch
	for b.Loop() {
		s.Add("0190f3a2-7b1c-7d2e-8f3a-4b5c6d7e8f90")
	}
}
