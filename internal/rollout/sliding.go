package rollout

import (
	"time"

	"github.com/headgate/headgate/admission"
)

// flowed is what passed in a step, and until when it counts in a sliding window.
type flowed struct {
	until time.Time
	much  float64
}

// stepsOfMinute is into how many steps a minute is divided at most, so that a forecast of many scopes takes no longer for windows of a second.
const stepsOfMinute = 60

// passSliding is pass for a limit of sliding windows: by steps of a tenth of the window, of a log of a sixtieth, each of which counts as a whole.
func (s *stream) passSliding(limit admission.Limit, from time.Time, lasts time.Duration, demand float64) (passed float64) {
	grain := limit.Window.Grain()
	if limit.Window.Logged() {
		grain = limit.Per / stepsOfMinute
	}
	most, stop := float64(limit.Burst), from.Add(lasts)
	step := max(grain, lasts/stepsOfMinute)
	for from.Before(stop) {
		end := from.Truncate(step).Add(step)
		if end.After(stop) {
			end = stop
		}
		room := most
		if step > limit.Per { // Whole windows pass in a step.
			room = most * float64(end.Sub(from)) / float64(limit.Per+limit.Window.Grain())
		}
		for len(s.flowed) > 0 && !s.flowed[0].until.After(from) {
			s.flowed = s.flowed[1:]
		}
		for _, one := range s.flowed {
			room -= one.much
		}
		part := min(max(room, 0), demand*end.Sub(from).Seconds()/lasts.Seconds())
		if part > 0 && step <= limit.Per {
			s.flowed = append(s.flowed, flowed{countsUntil(limit, from), part})
		}
		passed, from = passed+part, end
	}
	return passed
}

// countsUntil is when what passed in a step is as old as the window, of tenths all of its tenth.
func countsUntil(limit admission.Limit, from time.Time) time.Time {
	if grain := limit.Window.Grain(); !limit.Window.Logged() {
		from = from.Truncate(grain).Add(grain)
	}
	return from.Add(limit.Per)
}
