package rollout

import (
	"fmt"
	"math"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
)

// bound is what the tokens a minute and the burst of a suggested limit have to be within, and what says so.
type bound struct {
	least, most figures
	says        string
}

// figures are those of a limit.
type figures struct{ minute, burst float64 }

// figuresOf are a part of a limit's, in percent, before they are rounded.
func figuresOf(limit *admission.Limit, percent int) figures {
	part := float64(percent) / 100
	return figures{part * float64(limit.Rate()) * 60, part * float64(limit.Burst)}
}

// bounds are what a limit of the subject is within, the strictest last: what an adaptive entry leaves of the limits of the queue as they are now, the
// global limit, and what any limit may be.
func (of Subject) bounds(rules *Rules) (all []bound) {
	most := figures{float64(admission.MaxLimitTokens), float64(admission.MaxLimitTokens)}
	limits := rules.Compiled.LimitsFor("", of.Queue, "") // No tenant has an empty name, so these are of each.
	if a, name := adaptiveOf(&rules.Document, of.Queue); name != "" && !limits[admission.LevelQueue].Disabled {
		limit := &limits[admission.LevelQueue]
		upTo, part := most, fmt.Sprintf("%d%% at least", a.Min)
		if a.Max > 0 {
			upTo, part = figuresOf(limit, a.Max), fmt.Sprintf("%d to %d%%", a.Min, a.Max)
		}
		all = append(all, bound{
			figuresOf(limit, a.Min), upTo,
			fmt.Sprintf("/adaptive/%s has the limits of queue %s be %s of what they are, %s and %d at once", name, of.Queue, part, limit.Words(), limit.Burst),
		})
	}
	if global := &limits[admission.LevelGlobal]; !global.Disabled {
		all = append(all, bound{figures{}, figuresOf(global, 100), fmt.Sprintf("/global is %s and %d at once", global.Words(), global.Burst)})
	}
	return append(all, bound{figures{1, 1}, most, fmt.Sprintf("tokens and burst of a limit are 1 to %d", admission.MaxLimitTokens)})
}

// adaptiveOf returns what moves the limits of a queue, with its bounds in percent, a Max of zero for none, and its name; "" where nothing does.
func adaptiveOf(document *policy.Policy, queue string) (policy.Adaptive, string) {
	for name, a := range document.Adaptive {
		if queue != "" && a.Of == "queue "+queue {
			return a, name
		}
	}
	return policy.Adaptive{}, ""
}

func (b bound) ofMinute() (least, most float64) { return b.least.minute, b.most.minute }

func (b bound) ofBurst() (least, most float64) { return b.least.burst, b.most.burst }

// within makes of a figure a whole one within all bounds, and says which of them have changed it.
func within(what string, x float64, all []bound, figure func(bound) (least, most float64)) (float64, []string) {
	var cut []string
	x = max(math.Ceil(x), 1)
	for _, b := range all {
		least, most := figure(b)
		to := max(min(max(x, math.Ceil(least)), math.Floor(most)), 1)
		if to != x {
			cut = append(cut, fmt.Sprintf("%s %.0f, not %.0f: %s", what, to, x, b.says))
		}
		x = to
	}
	return x, cut
}
