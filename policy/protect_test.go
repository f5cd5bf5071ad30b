package policy

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

// TestProtectedTiersAreCutLast: for every part that a loop may leave, tiers that it protects have all of their limits while others are above min, and
// never less than their own min; less for all is never more for one.
func TestProtectedTiersAreCutLast(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		least, own := rapid.IntRange(1, 100).Draw(t, "min"), rapid.IntRange(1, 100).Draw(t, "protected min")
		p := limitsPolicy(Adaptive{Of: "queue mail", Min: least, Protect: map[string]Protection{"premium": {Min: own}}})
		p.Tenants = map[string]Tenant{"vip": {Tier: "premium"}}
		c, err := p.Prepare()
		if err != nil {
			t.Fatal(err)
		}
		for queue, want := range map[string][2]int{"mail": {least, own}, "calm": {}} {
			vip, other := c.LimitsFor("vip", queue, ""), c.LimitsFor("acme", queue, "")
			from, to := vip[admission.LevelQueue].Floor()
			fromOther, toOther := other[admission.LevelQueue].Floor()
			if [2]int{from, to} != want || queue == "mail" && (fromOther != 100 || toOther != least) {
				t.Fatalf("%s: protected %d to %d, others %d to %d", queue, from, to, fromOther, toOther)
			}
		}
		m := &c.Moving()[0]
		before, beforeOf := 0.0, 0.0
		for part := m.Part.Min; part <= partWhole; part++ {
			others, of := m.InForce("basic", float64(part)/partWhole), m.InForce("premium", float64(part)/partWhole)
			if of < float64(own)/100 || others < float64(least)/100 || of < 1 && others > float64(least)/100 || others < before || of < beforeOf {
				t.Fatalf("at %d of %d: others %v, protected %v, before %v and %v", part, m.Part.Min, others, of, before, beforeOf)
			}
			before, beforeOf = others, of
		}
		if first := m.InForce("premium", float64(m.Part.Min)/partWhole); m.Part.Min > 1 && first > float64(own)/100 {
			t.Fatalf("at least %v of %d %%", first, own)
		}
	})
}

// TestALimitOfATypeIsCutAsTheOthersOfItsQueue: whoever asks for it.
func TestALimitOfATypeIsCutAsTheOthersOfItsQueue(t *testing.T) {
	t.Parallel()
	p := limitsPolicy(Adaptive{Of: "queue mail", Min: 20, Protect: map[string]Protection{"premium": {Min: 60}}})
	mail := p.Queues["mail"]
	mail.EachTenant.TypeLimits = map[string]admission.Limit{Every: admission.PerSecond(3)}
	p.Queues["mail"], p.Tenants = mail, map[string]Tenant{"acme": {Tier: "premium"}}
	c := prepare(t, p)
	for tenant, want := range map[string][2]int{"acme": {20, 60}, "bolt": {100, 20}} {
		of, scope := c.TypeLimit(tenant, "mail", "report"), c.LimitsFor(tenant, "mail", admission.OfType("report"))[admission.LevelPriority]
		if from, least := of.Floor(); from != want[0] || least != want[1] || scope != *of {
			t.Errorf("%s has %+v, and its scope %+v", tenant, of, scope)
		}
	}
}

// TestProtectIsOfAQueueAlone, and of tiers that are there.
func TestProtectIsOfAQueueAlone(t *testing.T) {
	t.Parallel()
	const alone = `invalid adaptive.let-in.protect 1 tiers: allowed is none, but of "queue NAME": what all tenants share has no part of a tier's`
	for of, want := range map[string]string{"downstream smtp": alone, "global": alone, "queue mail": ""} {
		err := limitsPolicy(Adaptive{Of: of, Min: 20, Protect: map[string]Protection{"premium": {Min: 60}}}).Validate()
		if (want == "") != (err == nil) || err != nil && (!errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: %v", of, err)
		}
	}
}
