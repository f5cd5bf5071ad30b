package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/store"
)

// fullest returns that which is used the most.
func fullest(uses []store.BoundUse) (most store.BoundUse) {
	for i, u := range uses {
		if i == 0 || partOf(u) > partOf(most) {
			most = u
		}
	}
	return most
}

func partOf(u store.BoundUse) float64 { return float64(u.Used) / float64(u.Most) }

// boundWarn is from which part of a bound on the doctor warns.
const boundWarn = 0.75

// refusedAt says what becomes of what is beyond a bound, and what to do before.
var refusedAt = map[string][2]string{
	"queues": {"beyond, jobs that would make another are refused", "name the queues that are meant in the policy: those are never refused; look who makes the others: headgate queue list"},
	"lanes": {
		"beyond, jobs of that tenant that would make another are refused", "look which downstreams its jobs name: headgate explain tenant",
	},
	"breakers": {
		"beyond, the one that is closed and was quiet for longest is forgotten for each that comes", "look which downstreams jobs name: headgate breaker list",
	},
	"dead letters": {
		"beyond, one of the tenant that has the most goes for each that comes", "redrive or purge them, or set keep_dead: headgate dead list",
	},
}

func (d *doctor) bounds(uses []store.BoundUse) {
	u := fullest(uses)
	text := fmt.Sprintf("%d of %d %s are there", u.Used, u.Most, u.Bound)
	if partOf(u) < boundWarn {
		d.add("bounds", HealthOK, text+", the fullest bound", "")
		return
	}
	d.add("bounds", HealthWarn, text+": "+refusedAt[u.Bound][0], refusedAt[u.Bound][1])
}

func (d *doctor) holds(all []store.Hold) {
	var old []string
	for _, h := range all {
		if age := d.now.Sub(h.Since); h.Until.IsZero() && (h.Since.IsZero() || age > store.ForgottenAfter) {
			text := h.Words()
			if !h.Since.IsZero() {
				text += ", " + age.Round(time.Minute).String() + " ago"
			}
			old = append(old, text)
		}
	}
	if len(old) == 0 {
		d.add("holds", HealthOK, fmt.Sprintf("%d pauses and suspensions", len(all)), "")
		return
	}
	text := strings.Join(old[:min(len(old), 3)], "; ")
	if more := len(old) - 3; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	d.add("holds", HealthWarn, "without an end: "+text, "headgate holds shows all, headgate resume ends one")
}

// scales tells of limits that are not those of the policy.
func (d *doctor) scales(all []store.Scale) {
	if len(all) == 0 {
		d.add("scales", HealthOK, "no limit is scaled", "")
		return
	}
	texts := make([]string, 0, len(all))
	for _, s := range all {
		texts = append(texts, s.Words()+", until "+s.Until.UTC().Format(time.RFC3339))
	}
	d.add("scales", HealthWarn, strings.Join(texts, "; "), "headgate limit scale SCOPE --off ends one")
}
