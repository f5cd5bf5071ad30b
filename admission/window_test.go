package admission

import (
	"errors"
	"testing"
	"time"
	_ "time/tzdata"
)

func fixed(t *testing.T, window, anchor, zone string) Window {
	t.Helper()
	l, err := FixedWindow(1000, window, anchor, zone)
	if err != nil {
		t.Fatal(err)
	}
	return l.Window
}

// TestWindowsFollowTheCalendar: a day in Berlin has 23 hours in March and 25 in October, a month as many as it has, a week begins on Monday.
func TestWindowsFollowTheCalendar(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ window, anchor, zone, at, start, end string }{
		{"24h", "00:00", "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"24h", "00:00", "Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"24h", "00:00", "Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"24h", "06:30", "Asia/Kolkata", "2026-01-01T00:59:59Z", "2025-12-31T01:00:00Z", "2026-01-01T01:00:00Z"},
		{"month", "", "Europe/Berlin", "2026-03-01T00:00:00Z", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"},
		{"month", "00:00", "", "2028-02-29T23:59:59Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{"168h", "", "", "2026-11-25T08:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"},
		{"168h", "", "America/New_York", "2026-11-25T08:00:00Z", "2026-11-23T05:00:00Z", "2026-11-30T05:00:00Z"},
		{"24h", "08:00", "UTC", "2026-11-25T07:59:59Z", "2026-11-24T08:00:00Z", "2026-11-25T08:00:00Z"},
		{"90s", "", "", "2026-11-25T00:02:00Z", "2026-11-25T00:01:30Z", "2026-11-25T00:03:00Z"},
	} {
		at, _ := time.Parse(time.RFC3339, c.at)
		start, end := fixed(t, c.window, c.anchor, c.zone).Bounds(at)
		if got := [2]string{start.UTC().Format(time.RFC3339), end.UTC().Format(time.RFC3339)}; got != [2]string{c.start, c.end} {
			t.Errorf("%s at %s in %s: of %s it is %v, want %s to %s", c.window, c.anchor, c.zone, c.at, got, c.start, c.end)
		}
	}
}

// TestWindowsHaveNoGaps: each window ends where the next one begins, over years and changes of clocks.
func TestWindowsHaveNoGaps(t *testing.T) {
	t.Parallel()
	for _, w := range []Window{
		fixed(t, "24h", "02:30", "Europe/Berlin"), fixed(t, "24h", "00:00", "America/Sao_Paulo"), fixed(t, "72h", "", "Australia/Lord_Howe"),
		fixed(t, "month", "23:59", "America/New_York"), fixed(t, "7h", "03:00", ""),
	} {
		at := time.Date(2017, 1, 1, 0, 0, 0, 0, time.UTC)
		for range 1000 {
			start, end := w.Bounds(at)
			if !start.Before(end) || at.Before(start) || !at.Before(end) {
				t.Fatalf("%s in %s: %s is not from %s to %s", w.Length(), w.Zone(), at, start, end)
			}
			if before, same := w.Bounds(end.Add(-time.Microsecond)); !before.Equal(start) || !same.Equal(end) {
				t.Fatalf("%s in %s: the end of %s is in another window", w.Length(), w.Zone(), start)
			}
			at = end
		}
	}
}

func TestWindowsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ window, anchor, zone, field string }{
		{"", "", "", "window"},
		{"day", "", "", "window"},
		{"999ms", "", "", "window"},
		{"1500ms", "", "", "window"},
		{"745h", "", "", "window"},
		{"24h", "24:00", "", "anchor"},
		{"24h", "0:00", "", "anchor"},
		{"24h", "midnight", "", "anchor"},
		{"24h", "", "Berlin", "zone"},
		{"24h", "", "Local", "zone"},
		{"1h", "", "Europe/Berlin", "zone"},
		{"25h", "", "Europe/Berlin", "zone"},
	} {
		_, err := FixedWindow(1, c.window, c.anchor, c.zone)
		if field, bad := errors.AsType[*FieldError](err); !bad || field.Field != c.field {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if fixed(t, "24h", "", "Europe/Berlin") != fixed(t, "24h0m", "00:00", "Europe/Berlin") {
		t.Error("two windows that say the same are two")
	}
}
