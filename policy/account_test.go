package policy

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
)

const accountPolicy = `{"tiers": {"standard": {"limit": {"enabled": false}}}, "any_downstream": {"max_running": 50, "max_parked": 9},
	"downstreams": {
		"shopify": {"max_running": 400, "dispatch": {"tokens": 1000, "per": "1s"}, "max_retry_after": "5m"},
		"shopify+*": {"max_running": 4, "dispatch": {"tokens": 2, "per": "1s", "burst": 40}, "max_retry_after": "1m"},
		"shopify+plus": {"dispatch": {"tokens": 20, "per": "1s"}, "max_retry_after": "10s"},
		"sms+*": {"dispatch": {"tokens": 1, "per": "1s"}}
	}}`

// TestAccountsHaveWhatTheyAndEachHave: caps and rates are of the service, of each account and of one; what an account leaves out is that of each,
// which needs no gate of its own, and nothing of any_downstream; what is parked is a service's.
func TestAccountsHaveWhatTheyAndEachHave(t *testing.T) {
	t.Parallel()
	p, err := Unmarshal([]byte(accountPolicy))
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	caps, rates := map[string]int{}, map[string]admission.Tokens{}
	for _, of := range c.Caps() {
		caps[of.Downstream] = of.MaxRunning
	}
	for _, of := range c.DispatchRates() {
		rates[of.Downstream] = of.Limit.Tokens
	}
	if want := map[string]int{"*": 50, "shopify": 400, "shopify+*": 4}; !maps.Equal(caps, want) {
		t.Errorf("caps %v, want %v", caps, want)
	}
	if want := map[string]admission.Tokens{"shopify": 1000, "shopify+*": 2, "shopify+plus": 20, "sms+*": 1}; !maps.Equal(rates, want) {
		t.Errorf("rates %v, want %v", rates, want)
	}
	if got, want := c.MaxParked(), map[string]int{"*": 9, "shopify": MaxOverflowJobs}; !maps.Equal(got, want) {
		t.Errorf("parked %v, want %v", got, want)
	}
	for name, want := range map[string]time.Duration{
		"shopify": 5 * time.Minute, "shopify+plus": 10 * time.Second, "shopify+any": time.Minute, "sms+any": 0, "push+any": 0,
	} {
		if got := c.MaxRetryAfter(name); got != want {
			t.Errorf("max_retry_after of %s is %s, want %s", name, got, want)
		}
	}
}

// TestWhatAnAccountMayNotHave: each is one error that names the field, the value and what is allowed.
func TestWhatAnAccountMayNotHave(t *testing.T) {
	t.Parallel()
	const name = "SERVICE or SERVICE+ACCOUNT, one + and in both parts [A-Za-z0-9._@/-], 1-128 bytes in all"
	for text, want := range map[string]string{
		`{"a+b+c": {"max_running": 1}}`:             `invalid downstream "a+b+c": allowed is ` + name,
		`{"+b": {"max_running": 1}}`:                `invalid downstream "+b": allowed is ` + name,
		`{"a+": {"max_running": 1}}`:                `invalid downstream "a+": allowed is ` + name,
		`{"*+*": {"max_running": 1}}`:               `invalid downstream "*+any": allowed is ` + name,
		`{"a+b": {"max_parked": 3}}`:                `invalid downstreams.a+b.max_parked 3: allowed is none: jobs wait for the breaker of "a"`,
		`{"a+*": {"breaker": {"window": "5s"}}}`:    `invalid downstreams.a+*.breaker {…}: allowed is none: all accounts have the breaker of "a"`,
		`{"a+b": {"dispatch": {"enabled": false}}}`: `invalid downstreams.a+b.dispatch.enabled false: allowed is a rate, or no dispatch for that of each account`,
		`{"a+b": {"max_running": 5}}, "adaptive": {"out": {"of": "downstream a+b", "min": 1}}`:                                                                                      `invalid adaptive.out.of "downstream a+b": allowed is a service, "downstream NAME": the limits of an account do not move by themselves`,
		`{}, "global": {"tokens": 9, "per": "1s"}, "queues": {"mail": {"pressure": {"target_wait": "5s"}}}, "adaptive": {"out": {"of": "global", "min": 1, "depends_on": ["a+b"]}}`: `invalid adaptive.out.depends_on "a+b": allowed is names of downstreams`,
	} {
		p, err := Unmarshal([]byte(`{"downstreams": ` + text + `}`))
		if err == nil {
			err = p.Validate()
		}
		if err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// TestAnAccountIsSetAlone: an edit of one account changes no other entry, and its path names it as it is.
func TestAnAccountIsSetAlone(t *testing.T) {
	t.Parallel()
	before, err := Unmarshal([]byte(accountPolicy))
	if err != nil {
		t.Fatal(err)
	}
	after, err := Unmarshal([]byte(accountPolicy))
	if err != nil {
		t.Fatal(err)
	}
	after.Downstreams["shopify+shop-42"] = Downstream{MaxRunning: 2}
	changes, err := Diff(before, after)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, c := range changes {
		paths = append(paths, c.Path)
	}
	if want := []string{"/downstreams/shopify+shop-42/max_running"}; !slices.Equal(paths, want) {
		t.Errorf("paths %q, want %q", paths, want)
	}
}
