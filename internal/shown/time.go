package shown

import "time"

// Stamp is a time; nil for the zero one, which is left out.
func Stamp(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(Moment(t))
}

// Moment is a time in UTC; one beyond the years that JSON has, of a score or a field that somebody has damaged, is the nearest that it has,
// so that it spoils no answer but its own place.
func Moment(t time.Time) time.Time {
	t = t.UTC()
	switch {
	case t.Year() < 0:
		return time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	case t.Year() > 9999:
		return time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	}
	return t
}

// Millis is a duration in milliseconds, to the microsecond.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
