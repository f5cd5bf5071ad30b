package buckets

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

func TestBucketTextGoesThereAndBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		bucket := drawBucket(t, "bucket", someInstant, drawLimit(t, "limit"))
		if bucket.Absent() {
			t.Skip("an absent bucket has no text")
		}
		text, err := bucket.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Parse(string(text)); err != nil || got != bucket {
			t.Fatalf("Parse(%s) = %+v, %v, want %+v", text, got, err, bucket)
		}
	})
}

// packed writes a bucket as fragments/bucket.lua packs it.
func packed(stamp Instant, level Micro, burst admission.Tokens, rate admission.TokensPerSecond) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(stamp))[1:]
	b = append(b, binary.BigEndian.AppendUint64(nil, uint64(level))[1:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(burst))
	return string(binary.BigEndian.AppendUint64(b, math.Float64bits(float64(rate))))
}

func TestPackedBucketsAreReadAsTheirTexts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t, "limit")
		burst := admission.Tokens(limit.Burst / MicroOf(1))
		level := Micro(rapid.Int64Range(-int64(limit.Burst), int64(limit.Burst)).Draw(t, "level"))
		want := NewBucket(level, someInstant, limit)
		if got, err := Parse(packed(someInstant, level, burst, limit.Rate)); err != nil || got != want {
			t.Fatalf("%+v, %v, want %+v", got, err, want)
		}
	})
	for _, bad := range []string{packed(1, 2, 3, admission.TokensPerSecond(math.NaN())), packed(1, 2, 3, 2e12), packed(1, -1<<54, 3, 1)} {
		if b, err := Parse(bad); !errors.Is(err, admission.ErrInvalid) || b != (Bucket{}) {
			t.Errorf("Parse(%q) = %+v, %v", bad, b, err)
		}
	}
}

// The rates are as Lua 5.1 prints them with "%.17g".
func TestBucketTextIsWhatLuaPrints(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate admission.TokensPerSecond
		want string
	}{
		{200, "1:2:3:200"},
		{0.1, "1:2:3:0.10000000000000001"},
		{1.0 / 86400, "1:2:3:1.1574074074074073e-05"},
		{1.0 / 60, "1:2:3:0.016666666666666666"},
		{1e12, "1:2:3:1000000000000"},
		{123456789.125, "1:2:3:123456789.125"},
	} {
		text, err := Bucket{Level: 1, Stamp: 2, Fill: 3, Rate: c.rate}.MarshalText()
		if string(text) != c.want || err != nil {
			t.Errorf("MarshalText = %s, %v, want %s", text, err, c.want)
		}
	}
}

func TestParseQuotesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"", `invalid bucket "": allowed is level:stamp:fill:rate`},
		{"1:2:3", `invalid bucket "1:2:3": allowed is level:stamp:fill:rate`},
		{"1:2:3:4:5", `invalid bucket "1:2:3:4:5": allowed is level:stamp:fill:rate`},
		{"01:2:3:4", `invalid bucket level "01": allowed is an integer without sign, blanks or leading zeros`},
		{"1:+2:3:4", `invalid bucket stamp "+2": allowed is an integer without sign, blanks or leading zeros`},
		{"1:2:3.0:4", `invalid bucket fill "3.0": allowed is an integer without sign, blanks or leading zeros`},
		{"1:2:3:4.0", `invalid bucket rate "4.0": allowed is a number as %.17g prints it`},
		{"1:2:3:0x4p0", `invalid bucket rate "0x4p0": allowed is a number as %.17g prints it`},
		{"1:2:3:nan", `invalid bucket rate "nan": allowed is a number as %.17g prints it`},
		{"1:2:3:NaN", `invalid bucket rate NaN: allowed is 1.4584266726403823e-14 to 1000000000000 tokens per second`},
		{"1:2:3:0", `invalid bucket rate 0: allowed is 1.4584266726403823e-14 to 1000000000000 tokens per second`},
		{"a:b:3:1", "invalid bucket level \"a\": allowed is an integer without sign, blanks or leading zeros\n" +
			`invalid bucket stamp "b": allowed is an integer without sign, blanks or leading zeros`},
		{"1000000000000001:-2:9007199254740993:1", "invalid bucket level 1000000000000001: allowed is -1000000000000000 to 1000000000000000 micro-tokens\n" +
			"invalid bucket stamp -2: allowed is 0 to 9007199254740992 µs since the Unix epoch\n" +
			"invalid bucket fill 9007199254740993: allowed is 0 to 9007199254740992 µs"},
	} {
		_, err := Parse(c.text)
		if err == nil || err.Error() != c.want || !errors.Is(err, admission.ErrInvalid) {
			t.Errorf("Parse(%q) = %v, want %s", c.text, err, c.want)
		}
	}
}

func TestMarshalTextRefusesWhatParseWould(t *testing.T) {
	t.Parallel()
	for _, bucket := range []Bucket{{}, {Level: -maxMicro - 1, Rate: 1}, {Rate: admission.TokensPerSecond(math.NaN())}, {Rate: 2e12}, {Fill: -1, Rate: 1}} {
		if text, err := bucket.MarshalText(); !errors.Is(err, admission.ErrInvalid) || text != nil {
			t.Errorf("MarshalText of %+v = %s, %v, want an error", bucket, text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"0:0:0:1", "20000000:1763000000000000:3000000:10", "1:2:3:1.1574074074074073e-05", "1:2:3:0.10000000000000001",
		packed(1763000000000000, 20000000, 50, 10), "", ":::", "1:2:3:4:5", "-1:2:3:4", "1:2:3:inf", "1:2:3:1e999", "9999999999999999999:1:1:1", "1:2:3:1e+12",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		bucket, err := Parse(text)
		if err != nil {
			if !errors.Is(err, admission.ErrInvalid) || bucket != (Bucket{}) {
				t.Fatalf("Parse(%q) = %+v, %v", text, bucket, err)
			}
			return
		}
		again, err := bucket.MarshalText()
		if err != nil || string(again) != text && text[0] >= '-' {
			t.Fatalf("Parse(%q) marshals to %q, %v", text, again, err)
		}
	})
}
