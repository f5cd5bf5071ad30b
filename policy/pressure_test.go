package policy_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
)

// TestBadPressureHasOneClearError: each is refused with the field, what it says and what is allowed.
func TestBadPressureHasOneClearError(t *testing.T) {
	t.Parallel()
	measured := func(fields string) string { return `{"queues":{"mail":{"pressure":{` + fields + `}}}}` }
	sheds := func(fields string) string {
		return `{"queues":{"mail":{"pressure":{"target_wait":"5s"}}},"shedding":{` + fields + `}}`
	}
	for text, want := range map[string]string{
		measured(``):                                                                                                            `invalid queues.mail.pressure.target_wait "": allowed is 1ms to 24h, or a max_depth`,
		measured(`"target_wait":"25h"`):                                                                                         `invalid queues.mail.pressure.target_wait 25h: allowed is 1ms to 24h`,
		measured(`"target_wait":"-1s"`):                                                                                         `invalid queues.mail.pressure.target_wait -1s: allowed is 1ms to 24h`,
		measured(`"target_wait":"never"`):                                                                                       `invalid queues.mail.pressure.target_wait "never": allowed is a duration such as "500ms", "30s" or "24h"`,
		measured(`"max_depth":10000001`):                                                                                        `invalid queues.mail.pressure.max_depth 10000001: allowed is 0 to 10000000`,
		measured(`"max_depth":9,"interval":"1ms"`):                                                                              `invalid queues.mail.pressure.interval 1ms: allowed is 200ms to 5m`,
		measured(`"max_depth":9,"weights":{"depth":0.5,"slots":0.4}`):                                                           `invalid queues.mail.pressure.weights with the sum 0.9: allowed is weights that add up to 1`,
		measured(`"max_depth":9,"weights":{"depth":0}`):                                                                         `invalid queues.mail.pressure.weights.depth 0: allowed is above 0, at most 1`,
		measured(`"max_depth":9,"weights":{"depth":0.5,"luck":0.5}`):                                                            `invalid queues.mail.pressure.weights.luck (unknown): allowed is wait, depth, slots, run_p95, failed, cpu, memory and redis_memory`,
		measured(`"max_depth":9,"weights":{"depth":0.5,"wait":0.5}`):                                                            `invalid queues.mail.pressure.weights.wait 0.5: allowed is no weight without a target_wait`,
		measured(`"max_depth":9,"weights":{"slots":1}`):                                                                         `invalid queues.mail.pressure.weights.depth (none): allowed is a weight, since its bound is there`,
		measured(`"cpu":80`):                                                                                                    `invalid queues.mail.pressure.cpu (unknown): allowed is one of target_wait, max_depth, target_run, max_failed, weights, interval`,
		measured(`"max_depth":9,"weights":{"depth":0.5,"cpu":0.5}`):                                                             `invalid load (none): allowed is "load": {}, by which workers tell it, since queues.mail.pressure.weights.cpu is there`,
		measured(`"max_depth":9,"target_run":"1s"`):                                                                             `invalid queues.mail.pressure.weights.run_p95 (none): allowed is a weight, since its bound is there`,
		measured(`"max_depth":9,"target_run":"25h"`):                                                                            "invalid queues.mail.pressure.target_run 25h: allowed is 1ms to 24h\ninvalid queues.mail.pressure.weights.run_p95 (none): allowed is a weight, since its bound is there",
		measured(`"max_depth":9,"max_failed":2,"weights":{"depth":0.5,"failed":0.5}`):                                           `invalid load (none): allowed is "load": {}, by which workers tell it, since queues.mail.pressure.weights.failed is there` + "\n" + `invalid queues.mail.pressure.max_failed 2: allowed is above 0, at most 1`,
		measured(`"max_depth":9,"weights":{"depth":0.5,"failed":0.5}`):                                                          `invalid load (none): allowed is "load": {}, by which workers tell it, since queues.mail.pressure.weights.failed is there` + "\n" + `invalid queues.mail.pressure.weights.failed 0.5: allowed is no weight without a max_failed`,
		`{"load":{"every":"500ms"}}`:                                                                                            `invalid load.every 500ms: allowed is 1s to 1m`,
		sheds(`"order":[],"at":{"HIGH":["low"]}`):                                                                               `invalid shedding.order 0 classes: allowed is 1 to 128 classes, the one that is refused first first`,
		sheds(`"order":["low","medium"],"at":{"HIGH":["low"]}`):                                                                 `invalid shedding.order "low", "medium": allowed is each class of queue mail that is not in reserve: "high" is missing`,
		sheds(`"order":["urgent","low","medium","high"],"at":{"HIGH":["urgent"]}`):                                              `invalid shedding.order "urgent": allowed is a class of a queue: "high", "low", "medium"`,
		sheds(`"order":["low","medium","high"],"reserve":["critical"],"at":{"HIGH":["low"]}`):                                   `invalid shedding.reserve "critical": allowed is a class of a queue: "high", "low", "medium"`,
		sheds(`"order":["low","medium","high"],"reserve":["high"],"at":{"HIGH":["low"]}`):                                       `invalid shedding.order "high": allowed is each class once, in order or in reserve`,
		sheds(`"order":["low","medium","high"],"at":{}`):                                                                        `invalid shedding.at {}: allowed is a level, LOW to CRITICAL, with what it refuses`,
		sheds(`"order":["low","medium","high"],"at":{"SOON":["low"]}`):                                                          `invalid shedding.at "SOON": allowed is LOW, MEDIUM, HIGH and CRITICAL`,
		sheds(`"order":["low","medium","high"],"at":{"HIGH":["medium"]}`):                                                       `invalid shedding.at.HIGH "medium": allowed is classes of order, "class:tier", or either with ":over" for tenants over their share, with all that comes before them in the order`,
		sheds(`"order":["low","medium","high"],"at":{"HIGH":["low:basic"]}`):                                                    `invalid shedding.at.HIGH "low:basic": allowed is classes of order, "class:tier", or either with ":over" for tenants over their share, with all that comes before them in the order`,
		sheds(`"order":["low","medium","high"],"at":{"LOW":["low","medium"],"HIGH":["low"]}`):                                   `invalid shedding.at.HIGH "low": allowed is at least what the level before refuses`,
		sheds(`"order":["low","medium","high"],"tiers":["basic","standard"],"at":{"HIGH":["low"]}`):                             `invalid shedding.tiers "basic", "standard": allowed is each tier of the policy: "premium" is missing`,
		sheds(`"order":["low","medium","high"],"tiers":["basic","standard","premium","basic"],"at":{"HIGH":["low"]}`):           `invalid shedding.tiers "basic": allowed is each tier once`,
		sheds(`"order":["low","medium","high"],"tiers":["basic","standard","premium"],"at":{"HIGH":["low","medium:standard"]}`): `invalid shedding.at.HIGH "low", "medium:standard": allowed is classes of order, "class:tier", or either with ":over" for tenants over their share, with all that comes before them in the order`,
	} {
		_, err := policy.Unmarshal([]byte(text))
		if err == nil || !errors.Is(err, admission.ErrInvalid) {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := strings.TrimPrefix(err.Error(), "read policy: "); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

// TestSheddingKeepsTheOrder: whoever is refused at a level, so is everybody below, by class first and then by tier, at that level and at
// each higher one; nobody of a class in reserve ever is.
func TestSheddingKeepsTheOrder(t *testing.T) {
	t.Parallel()
	classes := []admission.Priority{"a", "b", "c", "d"}
	tiers := []string{"basic", "premium", "standard"}
	rapid.Check(t, func(t *rapid.T) {
		order := rapid.Permutation(classes).Draw(t, "order")
		reserve := order[rapid.IntRange(1, len(order)).Draw(t, "ordered"):]
		order = order[:len(order)-len(reserve)]
		s := &policy.Shedding{Order: order, Reserve: reserve, At: map[string][]string{}}
		if rapid.Bool().Draw(t, "by tier") {
			s.Tiers = rapid.Permutation(tiers).Draw(t, "tiers")
		}
		per := max(1, len(s.Tiers))
		refused := 0 // places
		upTo := map[admission.PressureLevel]int{}
		for level := admission.PressureLow; level <= admission.PressureCritical; level++ {
			if level == admission.PressureHigh || rapid.Bool().Draw(t, "at "+level.String()) {
				refused = rapid.IntRange(refused, 2*len(order)*per).Draw(t, "refused")
				s.At[level.String()] = listed(order, s.Tiers, refused)
			}
			upTo[level] = refused
		}
		p := policy.Policy{
			Queues: map[string]policy.Queue{"mail": {
				Classes:  []admission.Class{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}, {Name: "c", Weight: 1}, {Name: "d", Weight: 1}},
				Pressure: &policy.PressureRules{MaxDepth: 5},
			}},
			Tenants:  map[string]policy.Tenant{"in-basic": {Tier: "basic"}, "in-premium": {Tier: "premium"}},
			Shedding: s,
		}
		compiled, err := p.Prepare()
		if err != nil {
			t.Fatal(err)
		}
		for i, class := range slices.Concat(order, reserve) {
			for _, tier := range tiers {
				from, over, told := compiled.PressureFor("in-"+tier, "mail", class)
				if told != tier {
					t.Fatalf("tier %s is told as %s", tier, told)
				}
				place := i * per
				if len(s.Tiers) > 0 {
					place += slices.Index(s.Tiers, tier)
				}
				for level := admission.PressureNone; level <= admission.PressureCritical; level++ {
					for half, from := range []admission.PressureLevel{over, from} {
						if want := i < len(order) && 2*place+half < upTo[level]; (level >= from) != want {
							t.Fatalf("%s of %s, over its share %v, at %v: refused %v by %+v", class, tier, half == 0, level, !want, s)
						}
					}
				}
			}
		}
		if from, _, _ := compiled.PressureFor("in-basic", "other", "a"); from != 0 {
			t.Fatalf("a queue that is not measured refuses from level %v on", from)
		}
	})
}

// listed writes the first n places as an operator does, two for each class and tier.
func listed(order []admission.Priority, tiers []string, n int) []string {
	all := []string{}
	if len(tiers) == 0 {
		tiers = []string{""}
	}
	for i, class := range order {
		before := 2 * i * len(tiers)
		if n >= before+2*len(tiers) {
			all = append(all, string(class))
			continue
		}
		for j, tier := range tiers {
			one := strings.TrimSuffix(string(class)+":"+tier, ":")
			switch n - before - 2*j {
			case 1:
				all = append(all, one+":over")
			default:
				if n > before+2*j {
					all = append(all, one)
				}
			}
		}
	}
	return all
}

func TestPressureAllocatesNothing(t *testing.T) {
	p := policy.Policy{Queues: map[string]policy.Queue{"mail": {Pressure: &policy.PressureRules{MaxDepth: 5}}}, Shedding: &policy.Shedding{
		Order: []admission.Priority{"low", "medium", "high"}, At: map[string][]string{"HIGH": {"low"}},
	}}
	compiled, err := p.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { compiled.PressureFor("acme", "mail", "medium") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
