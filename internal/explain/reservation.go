package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/admission"
)

// expiryShown is of how many queues a tenant is told.
const expiryShown = 10

// expiryOf returns where the policy may say when a reservation in a queue expires, "" for one that names none, the strictest first.
func (r *rules) expiryOf(queue string) []candidate {
	var all []candidate
	if queue != "" {
		all = append(all, r.inQueue(queue, "reservations", "expire_after"))
	}
	return append(all, candidate{"reservations of the policy", []string{"reservations", "expire_after"}})
}

// expiry tells when a reservation in a queue expires, where the policy says it.
func (r *rules) expiry(e *Explanation, queue string) error {
	rule, err := r.first("", r.expiryOf(queue)...)
	if err != nil || rule.Path == "" {
		return err
	}
	e.add(Reason{
		Kind: KindReservation, Rule: rule, Change: "headgate queue set " + queue + " --reservation-expiry DURATION",
		Text: "a reservation there expires after " + admission.DurationText(r.compiled.ExpireAfter(queue)) + ": then what was reserved stands",
	})
	return nil
}

// expiryOfTenant tells when a tenant's reservations expire, where the policy says it: without a queue, and in those that say another.
func (r *rules) expiryOfTenant(e *Explanation) error {
	rule, err := r.first("built in: a minute", r.expiryOf("")...)
	if err != nil {
		return err
	}
	var own []string
	for name, q := range r.policy.Queues {
		if q.Reservations.ExpireAfter != 0 {
			own = append(own, name)
		}
	}
	if rule.Path == "" && len(own) == 0 {
		return nil
	}
	slices.Sort(own)
	shown := make([]string, 0, expiryShown)
	for _, name := range own[:min(len(own), expiryShown)] {
		after, at := admission.DurationText(r.policy.Queues[name].Reservations.ExpireAfter), pointer([]string{"queues", name, "reservations", "expire_after"})
		shown = append(shown, fmt.Sprintf("%s after %s (%s)", name, after, at))
	}
	text := "a reservation of it expires after " + admission.DurationText(r.compiled.ExpireAfter("")) + ": then what was reserved stands"
	if len(shown) > 0 {
		text += "; in queue " + strings.Join(shown, ", ")
	}
	if more := len(own) - expiryShown; more > 0 {
		text += fmt.Sprintf(", and in %d more queues what they say", more)
	}
	e.add(Reason{Kind: KindReservation, Text: text, Rule: rule, Change: `headgate policy merge FILE, with {"reservations": {"expire_after": "DURATION"}}`})
	return nil
}
