package admission

import (
	"strconv"
	"sync"
	"time"
	"unique"
)

// Window says when a limit of fixed windows begins anew, or how far one of sliding windows looks back. The zero Window is none: the limit is a
// token bucket. FixedWindow, SlidingWindow and SlidingLog make one; two that say the same are equal.
type Window struct{ rule unique.Handle[windowRule] }

type windowRule struct {
	length, anchor time.Duration
	month          bool
	zone           string
	// grain is how exactly a sliding window knows when something was taken, zero of a fixed one.
	grain time.Duration
	// location is nil where all windows are of one length: then they are counted from the anchor of Monday 1970-01-05 in UTC.
	location *time.Location
}

const (
	// WindowMonth is the length of a window that is a month of the calendar.
	WindowMonth = "month"
	// MinWindow is the shortest fixed window; the longest is MaxLimitPer, or a month.
	MinWindow = time.Second
	day       = 24 * time.Hour
	// firstMonday is the day of January 1970 from which windows of several days are counted.
	firstMonday = 5
)

// locations are the zones that were asked for, so that equal zones are one location.
var locations struct {
	sync.Mutex

	known map[string]*time.Location
}

func locationOf(zone string) (*time.Location, error) {
	locations.Lock()
	defer locations.Unlock()
	if known := locations.known[zone]; known != nil {
		return known, nil
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		return nil, err
	}
	if locations.known == nil {
		locations.known = map[string]*time.Location{}
	}
	locations.known[zone] = location
	return location, nil
}

// validateWindow checks that a limit with a Window is what FixedWindow makes.
func (l Limit) validateWindow(path string) error {
	if length := l.Window.rule.Value().length; l.Per != length {
		return &FieldError{path + ".per", l.Per.String(), "the length of its window, " + length.String()}
	}
	if l.Burst != l.Tokens {
		tokens := strconv.FormatInt(int64(l.Tokens), 10)
		return &FieldError{path + ".burst", strconv.FormatInt(int64(l.Burst), 10), "what its window holds, " + tokens + " tokens"}
	}
	return l.validateLog(path)
}

// FixedWindow returns a limit of so many tokens in each window: a length from 1s to 31 days in whole seconds, as time.ParseDuration reads it, or
// "month". A window begins at anchor, a time of day as "15:04" ("" is midnight), in a zone of the IANA database ("" is UTC), and a week on
// Monday. Only whole days and months may have another zone: there a day has 23 or 25 hours where clocks change. Errors are *FieldError, of the
// fields window, anchor and zone.
func FixedWindow(tokens Tokens, window, anchor, zone string) (Limit, error) {
	r := windowRule{length: MaxLimitPer, month: window == WindowMonth, zone: zone}
	if !r.month {
		var err error
		if r.length, err = windowLength(window, `, or "month"`); err != nil {
			return Limit{}, err
		}
	}
	if anchor != "" {
		at, err := time.Parse("15:04", anchor)
		if err != nil || at.Format("15:04") != anchor {
			return Limit{}, &FieldError{"anchor", quote(anchor), `a time of day from "00:00" to "23:59"`}
		}
		r.anchor = time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute
	}
	if zone == "UTC" {
		r.zone = ""
	}
	if r.zone != "" && !r.month && r.length%day != 0 {
		return Limit{}, &FieldError{"zone", quote(zone), "UTC, or a window of whole days or a month: " + r.length.String() + " is none"}
	}
	if r.zone != "" || r.month {
		location, err := locationOf(r.zone)
		if err != nil || zone == "Local" {
			return Limit{}, &FieldError{"zone", quote(zone), `a zone of the IANA database such as "Europe/Berlin", or UTC`}
		}
		r.location = location
	}
	return Limit{Tokens: tokens, Per: r.length, Burst: tokens, Window: Window{unique.Make(r)}}, nil
}

// IsZero reports whether there is none.
func (w Window) IsZero() bool { return w == Window{} }

// Length returns how long a window is, as FixedWindow reads it.
func (w Window) Length() string {
	if r := w.rule.Value(); !r.month {
		return DurationText(r.length)
	}
	return WindowMonth
}

// Anchor returns the time of day at which windows begin.
func (w Window) Anchor() string { return time.Time{}.Add(w.rule.Value().anchor).Format("15:04") }

// Zone returns the zone of that, "UTC" for none.
func (w Window) Zone() string {
	if zone := w.rule.Value().zone; zone != "" {
		return zone
	}
	return "UTC"
}

// Even returns the length of windows that are all of one length, and when one of them begins, in microseconds of Unix time; ok is false for
// those of the calendar.
func (w Window) Even() (length, phase int64, ok bool) {
	r := w.rule.Value()
	if r.location != nil {
		return 0, 0, false
	}
	begin := (firstMonday-1)*day + r.anchor
	return r.length.Microseconds(), (begin % r.length).Microseconds(), true
}

// Bounds returns the fixed window of a time: it begins at start, and end is when the next one does.
func (w Window) Bounds(at time.Time) (start, end time.Time) {
	if length, phase, ok := w.Even(); ok {
		us := at.UnixMicro() - phase
		from := us - (us%length+length)%length + phase
		return time.UnixMicro(from).UTC(), time.UnixMicro(from + length).UTC()
	}
	n := w.number(at)
	return w.begin(n), w.begin(n + 1)
}

// UntilNext returns how long from a time on it takes until the next window begins; of sliding ones how long until all that was taken has come
// back at the latest.
func (w Window) UntilNext(at time.Time) time.Duration {
	if r := w.rule.Value(); r.grain > 0 {
		return r.length + r.grain - time.Microsecond
	}
	_, end := w.Bounds(at)
	return end.Sub(at)
}

// Around returns when the windows near a time of the calendar begin, so many before the one of that time and after it, in microseconds.
func (w Window) Around(at time.Time, beside int) []int64 {
	n, begins := w.number(at), make([]int64, 0, 2*beside+2)
	for i := n - beside; i <= n+beside+1; i++ {
		begins = append(begins, w.begin(i).UnixMicro())
	}
	return begins
}

// begin is when the n-th window of the calendar begins.
func (w Window) begin(n int) time.Time {
	r := w.rule.Value()
	hour, minute := int(r.anchor/time.Hour), int(r.anchor%time.Hour/time.Minute)
	if r.month {
		return time.Date(1970, time.Month(1+n), 1, hour, minute, 0, 0, r.location)
	}
	return time.Date(1970, 1, firstMonday+n*int(r.length/day), hour, minute, 0, 0, r.location)
}

// number is the window of the calendar in which a time lies.
func (w Window) number(at time.Time) int {
	r := w.rule.Value()
	year, month, date := at.In(r.location).Date()
	n := (year-1970)*12 + int(month) - 1
	if !r.month {
		n = int(time.Date(year, month, date, 0, 0, 0, 0, time.UTC).Sub(time.Date(1970, 1, firstMonday, 0, 0, 0, 0, time.UTC)) / r.length)
	}
	for w.begin(n).After(at) {
		n--
	}
	for !w.begin(n + 1).After(at) {
		n++
	}
	return n
}

// Words writes when a window begins, behind what it holds: " in windows of 1h", " a day, new at 00:00 in Europe/Berlin"; of sliding ones " in any
// 1m" and " in any 1m, by a log".
func (w Window) Words() string {
	r := w.rule.Value()
	switch {
	case w.Logged():
		return " in any " + DurationText(r.length) + ", by a log"
	case r.grain > 0:
		return " in any " + DurationText(r.length)
	}
	if r.location == nil && r.length < day {
		return " in windows of " + DurationText(r.length)
	}
	span := "a day"
	switch {
	case r.month:
		span = "a month"
	case r.length == 7*day:
		span = "a week"
	case r.length != day && r.length%day == 0:
		span = "in " + strconv.Itoa(int(r.length/day)) + " days"
	case r.length != day:
		span = "in " + DurationText(r.length)
	}
	return " " + span + ", new at " + w.Anchor() + " in " + w.Zone()
}
