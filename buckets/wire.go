package buckets

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/headgate/headgate/admission"
)

// Bounds of a stored bucket. The rates are that of the slowest valid limit, divided among the most partitions that may share it with a share of
// a thousandth, and scaled to a hundredth, and that of the fastest.
const (
	maxExact = 1 << 53
	minRate  = 1 / (31 * 24 * 60 * 60.0) / 256 / 1000 / 100
	maxRate  = 1e12
)

// MarshalText returns the bucket as "level:stamp:fill:rate": three integers in micro-tokens, microseconds since
// the Unix epoch and microseconds, and the rate in tokens a second as C's and Lua's "%.17g" print it. It reports
// every field that is out of range; an absent bucket has no text. A window is always packed.
func (b Bucket) MarshalText() ([]byte, error) {
	if err := b.validate(); err != nil {
		return nil, err
	}
	switch {
	case b.Windowed():
		return b.packWindow(), nil
	case b.Sliding():
		return b.packSliding(), nil
	}
	text := make([]byte, 0, 64)
	text = strconv.AppendInt(text, int64(b.Level), 10)
	text = append(text, ':')
	text = strconv.AppendInt(text, int64(b.Stamp), 10)
	text = append(text, ':')
	text = strconv.AppendInt(text, int64(b.Fill), 10)
	text = append(text, ':')
	return appendRate(text, b.Rate), nil
}

// appendRate appends what "%.17g" prints, which for the rates of valid limits is the same in Go, C and Lua.
func appendRate(text []byte, rate admission.TokensPerSecond) []byte {
	return strconv.AppendFloat(text, float64(rate), 'g', 17, 64)
}

// packedSize is how long a packed bucket is, in bytes.
const packedSize = 26

// Parse reads a stored bucket: what MarshalText writes, and nothing else, or the same packed. Another spelling of the same numbers is
// an error, so that two stores never differ in bytes alone. It reports every bad field at once; each error matches
// headgate.ErrInvalid.
//
// A packed bucket is 26 bytes, numbers with their highest byte first: the stamp in 7, the level in 7 with a sign, the burst in
// whole tokens in 4, the rate as a double in 8. Its first byte is below that of a digit or a minus until the year 2370. A window is 29 bytes, a
// "w" and then its end, what is left of it, its length and what it held as it began, each in 7. A sliding window begins with a "c" or an "l".
func Parse(text string) (Bucket, error) {
	if len(text) == windowSize && text[0] == windowLetter {
		return unpackWindow(text)
	}
	if len(text) >= logHead && (text[0] == countLetter || text[0] == logLetter) {
		return unpackSliding(text)
	}
	if len(text) == packedSize && text[0] < '-' {
		return unpack(text)
	}
	fields := strings.Split(text, ":")
	if len(fields) != 4 || len(text) > maxText {
		return Bucket{}, &admission.FieldError{Field: "bucket", Value: quote(text), Allowed: "level:stamp:fill:rate"}
	}
	level, levelErr := parseInteger("bucket level", fields[0])
	stamp, stampErr := parseInteger("bucket stamp", fields[1])
	fill, fillErr := parseInteger("bucket fill", fields[2])
	rate, rateErr := parseRate(fields[3])
	if err := errors.Join(levelErr, stampErr, fillErr, rateErr); err != nil {
		return Bucket{}, err
	}
	bucket := Bucket{Level: Micro(level), Stamp: Instant(stamp), Fill: Span(fill), Rate: rate}
	if err := bucket.validate(); err != nil {
		return Bucket{}, err
	}
	return bucket, nil
}

// Bytes of a packed window: a letter, and four numbers of sevenBytes.
const (
	windowLetter = 'w'
	sevenBytes   = 7
	windowSize   = 1 + 4*sevenBytes
)

func (b Bucket) packWindow() []byte {
	packed := append(make([]byte, 0, windowSize), windowLetter)
	for _, n := range []int64{int64(b.Stamp), int64(b.Level), int64(b.Fill), int64(b.Quota)} {
		for at := sevenBytes - 1; at >= 0; at-- {
			packed = append(packed, byte(n>>(8*at)))
		}
	}
	return packed
}

func unpackWindow(packed string) (Bucket, error) {
	number := func(i int) int64 { return bigEndian(packed, 1+i*sevenBytes, 1+(i+1)*sevenBytes) << 8 >> 8 }
	b := Bucket{Stamp: Instant(number(0)), Level: Micro(number(1)), Fill: Span(number(2)), Quota: Micro(number(3))}
	if err := b.validate(); err != nil {
		return Bucket{}, err
	}
	return b, nil
}

// bigEndian is the number in some bytes of a text.
func bigEndian(text string, from, to int) (n int64) {
	for _, b := range []byte(text[from:to]) {
		n = n<<8 | int64(b)
	}
	return n
}

func unpack(packed string) (Bucket, error) {
	number := func(from, to int) int64 { return bigEndian(packed, from, to) }
	level := Micro(number(7, 14) << 8 >> 8) // with the sign of the highest of its seven bytes
	limit := Limit{Rate: admission.TokensPerSecond(math.Float64frombits(uint64(number(18, 26)))), Burst: MicroOf(admission.Tokens(number(14, 18)))}
	bucket := NewBucket(level, Instant(number(0, 7)), limit)
	if err := bucket.validate(); err != nil {
		return Bucket{}, err
	}
	return bucket, nil
}

// maxText is longer than any text that MarshalText returns, in bytes.
const maxText = 96

func parseInteger(field, text string) (int64, error) {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(value, 10) != text {
		return 0, &admission.FieldError{Field: field, Value: quote(text), Allowed: "an integer without sign, blanks or leading zeros"}
	}
	return value, nil
}

func parseRate(text string) (admission.TokensPerSecond, error) {
	value, err := strconv.ParseFloat(text, 64)
	rate := admission.TokensPerSecond(value)
	if err != nil || string(appendRate(nil, rate)) != text {
		return 0, &admission.FieldError{Field: "bucket rate", Value: quote(text), Allowed: "a number as %.17g prints it"}
	}
	return rate, nil
}

// validate reports every field that is out of range.
func (b Bucket) validate() error {
	var bad []error
	check := func(field string, value, low, high int64, unit string) {
		if value < low || value > high {
			allowed := fmt.Sprintf("%d to %d %s", low, high, unit)
			bad = append(bad, &admission.FieldError{Field: field, Value: strconv.FormatInt(value, 10), Allowed: allowed})
		}
	}
	check("bucket level", int64(b.Level), -int64(maxMicro), int64(maxMicro), "micro-tokens")
	check("bucket stamp", int64(b.Stamp), 0, maxExact, "µs since the Unix epoch")
	check("bucket fill", int64(b.Fill), 0, maxExact, "µs")
	if b.Sliding() {
		b.validateSliding(check)
	} else if b.Quota != 0 {
		check("window's tokens", int64(b.Quota), int64(MicroPerToken), int64(maxMicro), "micro-tokens")
	} else if rate := float64(b.Rate); math.IsNaN(rate) || rate < minRate || rate > maxRate {
		allowed := fmt.Sprintf("%.17g to %.17g tokens per second", minRate, maxRate)
		bad = append(bad, &admission.FieldError{Field: "bucket rate", Value: fmt.Sprintf("%.17g", rate), Allowed: allowed})
	}
	return errors.Join(bad...)
}

// quote shortens what is not worth printing whole.
func quote(text string) string {
	if len(text) > maxText {
		return strconv.Quote(text[:maxText]) + "..."
	}
	return strconv.Quote(text)
}
