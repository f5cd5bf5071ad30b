package names

import (
	"cmp"
	"strconv"
	"strings"
)

// Before reports whether a token is of an entry before another one's: a time and a number, with a dash. None is before all.
func Before(a, b string) bool {
	aTime, aNumber, _ := strings.Cut(a, "-")
	bTime, bNumber, _ := strings.Cut(b, "-")
	return cmp.Or(
		cmp.Compare(len(aTime), len(bTime)), strings.Compare(aTime, bTime), cmp.Compare(len(aNumber), len(bNumber)), strings.Compare(aNumber, bNumber),
	) < 0
}

// After reports whether one id of a stream follows another.
func After(token, other string) bool {
	at, n := parts(token)
	otherAt, otherN := parts(other)
	return at > otherAt || at == otherAt && n > otherN
}

func parts(token string) (at, n uint64) {
	first, second, _ := strings.Cut(token, "-")
	at, _ = strconv.ParseUint(first, 10, 64)
	n, _ = strconv.ParseUint(second, 10, 64)
	return at, n
}
