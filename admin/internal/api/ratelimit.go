package api

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// setRateLimit says of each bucket on the way, once, what it can hold and what it holds, in the fields of
// draft-ietf-httpapi-ratelimit-headers. A token bucket is told as a quota of its burst with the time in which it fills
// as window; t is the time until it is full.
func setRateLimit(header http.Header, answers []answerView) {
	seen := map[string]bool{}
	for _, answer := range answers {
		for _, b := range answer.Buckets {
			name := `"` + string(b.Scope) + `"` // A scope has no byte that a string of structured fields escapes.
			if seen[name] {
				continue
			}
			seen[name] = true
			header.Add("RateLimit-Policy", name+";q="+strconv.FormatInt(int64(b.Burst), 10)+";w="+seconds(b.fills()))
			header.Add("RateLimit", name+";r="+whole(b.TokensLeft)+";t="+seconds(time.Duration(b.FullInMs*float64(time.Millisecond))))
		}
	}
}

// setOldRateLimit tells of the bucket with the least tokens in the fields that were usual before.
func setOldRateLimit(header http.Header, answers []answerView) {
	var least *bucketView
	for i := range answers {
		for j := range answers[i].Buckets {
			if b := &answers[i].Buckets[j]; least == nil || b.TokensLeft < least.TokensLeft {
				least = b
			}
		}
	}
	if least == nil {
		return
	}
	header.Set("X-RateLimit-Limit", strconv.FormatInt(int64(least.Burst), 10))
	header.Set("X-RateLimit-Remaining", whole(least.TokensLeft))
	header.Set("X-RateLimit-Reset", seconds(time.Duration(least.FullInMs*float64(time.Millisecond))))
}

func whole(tokens float64) string { return strconv.FormatInt(int64(math.Floor(tokens)), 10) }

// seconds rounds up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
