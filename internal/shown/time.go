package shown

import "time"

// Stamp is a time; nil for the zero one, which is left out.
func Stamp(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}

// Millis is a duration in milliseconds, to the microsecond.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
