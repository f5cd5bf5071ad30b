package shown

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/limitheader"
)

// Bucket is a token bucket as the headers of an answer tell of it.
type Bucket = limitheader.Bucket

// SetRateLimit tells of buckets what they take and what they hold, each field as one list. wait is the answer's Retry-After, zero where
// it has none.
func SetRateLimit(header http.Header, buckets []Bucket, wait time.Duration) {
	SetRateLimitPolicy(header, buckets)
	setList(header, limitheader.LimitField, buckets, func(b Bucket) string { return b.Limit(wait) })
}

// SetRateLimitPolicy tells of buckets what they take.
func SetRateLimitPolicy(header http.Header, buckets []Bucket) {
	setList(header, limitheader.PolicyField, buckets, Bucket.Policy)
}

func setList(header http.Header, field string, buckets []Bucket, item func(Bucket) string) {
	items := make([]string, len(buckets))
	for i, b := range buckets {
		items[i] = item(b)
	}
	if len(items) > 0 {
		header.Set(field, strings.Join(items, ", "))
	}
}

// SetOldRateLimit tells of one bucket in the fields that were usual before.
func SetOldRateLimit(header http.Header, b Bucket) {
	header.Set(limitheader.OldLimitField, strconv.FormatInt(int64(b.Burst), 10))
	header.Set(limitheader.OldRemainingField, strconv.FormatInt(b.Remaining(), 10))
	header.Set(limitheader.OldResetField, strconv.FormatInt(limitheader.Seconds(b.UntilFull()), 10))
}
