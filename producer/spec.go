package producer

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// schedule is when a periodic job runs: the same ticks in every process, whenever it was started.
type schedule interface {
	// next returns the first tick after t; zero if there is none within five years.
	next(t time.Time) time.Time
}

// cronSchedule is a line of cron in a time zone.
type cronSchedule struct {
	line     cron.Schedule
	location *time.Location
}

func (c cronSchedule) next(t time.Time) time.Time { return c.line.Next(t.In(c.location)) }

// everySchedule is each multiple of a number of seconds since 1970. The cron library counts from the start of the
// process instead, which would be other ticks in each.
type everySchedule struct{ seconds int64 }

func (e everySchedule) next(t time.Time) time.Time {
	return time.Unix((t.Unix()/e.seconds+1)*e.seconds, 0).UTC()
}

// specAllowed is what a Spec may be.
const specAllowed = `five fields of cron (minute hour day month weekday), "@hourly" and its like, or "@every" and whole seconds, ` +
	`after "CRON_TZ=ZONE " if need be`

// maxEvery is the longest period of "@every".
const maxEvery = 366 * 24 * time.Hour

// parseSpec reads a Spec. With seconds a sixth field may stand before the others. location is for specs that name none.
func parseSpec(spec string, seconds bool, location *time.Location) (schedule, error) {
	line := spec
	for _, prefix := range []string{"CRON_TZ=", "TZ="} {
		zone, ok := strings.CutPrefix(spec, prefix)
		if !ok {
			continue
		}
		zone, rest, ok := strings.Cut(zone, " ")
		if !ok || zone == "" {
			return nil, errors.New("a time zone and nothing after it")
		}
		own, err := time.LoadLocation(zone)
		if err != nil {
			return nil, fmt.Errorf("load time zone: %w", err)
		}
		line, location = strings.TrimSpace(rest), own
		if strings.Contains(line, "=") {
			return nil, errors.New("a second time zone")
		}
		break
	}
	if text, ok := strings.CutPrefix(line, "@every "); ok {
		every, err := time.ParseDuration(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		if every < time.Second || every > maxEvery || every%time.Second != 0 {
			return nil, fmt.Errorf("%s is not 1s to %s in whole seconds", every, maxEvery)
		}
		return everySchedule{seconds: int64(every / time.Second)}, nil
	}
	fields := cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor
	if seconds {
		fields |= cron.SecondOptional
	}
	read, err := cron.NewParser(fields).Parse(line)
	if err != nil {
		return nil, err
	}
	s := cronSchedule{line: read, location: location}
	if s.next(time.Now()).IsZero() {
		return nil, errors.New("it has no tick within five years")
	}
	return s, nil
}

// ticks returns the latest ticks, at most so many, after one time and up to another, in order. It looks back from the
// end in spans that double, because a short period may have millions of ticks behind it.
func ticks(s schedule, after, until time.Time, most int) []time.Time {
	for span := time.Minute; ; span *= 2 {
		from := until.Add(-span)
		all := !from.After(after)
		if all {
			from = after
		}
		var found []time.Time
		for t := s.next(from); !t.IsZero() && !t.After(until); t = s.next(t) {
			found = append(found, t)
		}
		if all || len(found) >= most {
			return found[max(len(found)-most, 0):]
		}
	}
}
