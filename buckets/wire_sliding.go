package buckets

import (
	"encoding/binary"
	"math"

	"github.com/headgate/headgate/admission"
)

// A sliding window is stored as a letter, its length in whole seconds in 4 bytes, and what it admits in 7; behind a "c" the time of what was taken
// last in 7, and what was in its grain and in each of the 10 before in 4: 63 bytes, with which a hash of Redis stays a list of small values. Behind
// an "l" of a log come the sum of all entries in 6, and the entries, oldest first, each a time in 7 and tokens in 4.
const (
	countLetter, logLetter = 'c', 'l'
	grains                 = admission.SubWindows + 1
	countSize              = 1 + 4 + 2*sevenBytes + 4*grains
	logHead                = 1 + 4 + sevenBytes + 6
	entrySize              = sevenBytes + 4
)

// pack writes what was taken, as Bucket.Taken and a log have it.
func pack(all []taken) string {
	packed := make([]byte, 0, entrySize*len(all))
	for _, one := range all {
		packed = appendNumber(packed, int64(one.stamp), sevenBytes)
		packed = binary.BigEndian.AppendUint32(packed, uint32(min(one.tokens, mostTaken)))
	}
	return string(packed)
}

// all is what was taken, oldest first.
func (b Bucket) all() []taken {
	all := make([]taken, 0, len(b.Taken)/entrySize)
	for at := 0; at+entrySize <= len(b.Taken); at += entrySize {
		all = append(all, taken{Instant(bigEndian(b.Taken, at, at+sevenBytes)), bigEndian(b.Taken, at+sevenBytes, at+entrySize)})
	}
	return all
}

// appendNumber appends so many bytes of a number, the highest first.
func appendNumber(to []byte, n int64, size int) []byte {
	for at := size - 1; at >= 0; at-- {
		to = append(to, byte(n>>(8*at)))
	}
	return to
}

func (b Bucket) packSliding() []byte {
	letter := byte(countLetter)
	if b.Grain == 1 {
		letter = logLetter
	}
	packed := append(make([]byte, 0, max(countSize, logHead+len(b.Taken))), letter)
	packed = binary.BigEndian.AppendUint32(packed, uint32(int64(b.Fill)/1_000_000))
	packed = appendNumber(packed, int64(b.Quota), sevenBytes)
	all := b.all()
	if letter == logLetter {
		sum := int64(0)
		for _, one := range all {
			sum += one.tokens
		}
		return append(appendNumber(packed, sum, logHead-len(packed)), b.Taken...)
	}
	newest := b.newest()
	packed = appendNumber(packed, int64(newest), sevenBytes)
	packed = packed[:countSize]
	for _, one := range all {
		at := countSize - 4*grains + 4*int((newest-one.stamp)/Instant(b.Grain))
		binary.BigEndian.PutUint32(packed[at:], uint32(one.tokens))
	}
	return packed
}

// unpackSliding reads what packSliding writes, and nothing else.
func unpackSliding(packed string) (Bucket, error) {
	b := Bucket{Fill: Span(bigEndian(packed, 1, 5) * 1_000_000), Quota: Micro(bigEndian(packed, 5, 5+sevenBytes)), Grain: 1}
	if packed[0] == countLetter {
		b.Grain = b.Fill / admission.SubWindows
		newest := Instant(bigEndian(packed, 5+sevenBytes, 5+2*sevenBytes))
		var all []taken
		for i := grains - 1; i >= 0 && len(packed) == countSize; i-- {
			at := countSize - 4*grains + 4*i
			if tokens := bigEndian(packed, at, at+4); tokens > 0 {
				all = append(all, taken{newest - Instant(i)*Instant(b.Grain), tokens})
			}
		}
		b.Taken = pack(all)
	} else {
		b.Taken = packed[logHead:]
	}
	if err := b.validate(); err != nil {
		return Bucket{}, err
	}
	if string(b.packSliding()) != packed {
		return Bucket{}, &admission.FieldError{Field: "bucket", Value: quote(packed), Allowed: "a sliding window as it is written"}
	}
	return b, nil
}

// validateSliding reports every field of a sliding window that is out of range.
func (b Bucket) validateSliding(check func(field string, value, low, high int64, unit string)) {
	longest := admission.MaxLimitPer.Microseconds()
	check("window", int64(b.Fill), 1_000_000, longest, "µs")
	check("window's tokens", int64(b.Quota), int64(MicroPerToken), int64(maxMicro), "micro-tokens")
	last := Instant(-1)
	for _, one := range b.all() {
		check("window's entry", int64(one.stamp), int64(last)+1, maxExact, "µs since the Unix epoch, each later than the one before")
		check("window's entry", one.tokens, 1, math.MaxUint32, "tokens")
		if last = one.stamp; b.Grain > 1 {
			check("window's entry", int64(one.stamp)%int64(b.Grain), int64(b.Grain)-1, int64(b.Grain)-1, "µs behind the beginning of its part of the window")
			check("window's entry", int64(one.stamp), int64(b.newest())-admission.SubWindows*int64(b.Grain), maxExact, "µs, no older than the window")
		}
	}
	check("window's entries", int64(len(b.Taken)%entrySize), 0, 0, "bytes behind the last")
}
