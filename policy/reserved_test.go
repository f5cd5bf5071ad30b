package policy_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
)

// TestBadReservesHaveOneClearError: each is refused with the field, what it says and what is allowed.
func TestBadReservesHaveOneClearError(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]string{
		`"classes":["high"]`:                               `slots 0: allowed is 1 to 1000000, or a percent`,
		`"classes":["high"],"slots":-1`:                    `slots -1: allowed is 1 to 1000000`,
		`"classes":["high"],"percent":100`:                 `percent 100: allowed is 1 to 99`,
		`"classes":["high"],"percent":25,"slots":4`:        `percent 25: allowed is none beside slots`,
		`"classes":["urgent"],"slots":4`:                   `classes "urgent": allowed is a class of the queue: "high", "medium", "low"`,
		`"classes":["high","high"],"slots":4`:              `classes "high": allowed is each class once`,
		`"classes":[],"slots":4`:                           `classes 0 classes: allowed is 1 to 2 classes of the queue: one is left that may not take them`,
		`"classes":["high","medium","low"],"slots":4`:      `classes 3 classes: allowed is 1 to 2 classes of the queue: one is left that may not take them`,
		`"classes":["high"],"slots":4,"work_conserving":1`: `work_conserving (unknown): allowed is one of classes, slots, percent, lend`,
	} {
		_, err := policy.Unmarshal([]byte(`{"queues":{"mail":{"reserved":{` + fields + `}}}}`))
		if err == nil || !errors.Is(err, admission.ErrInvalid) {
			t.Errorf("%s: %v", fields, err)
			continue
		}
		if got := strings.TrimPrefix(err.Error(), "read policy: "); got != "invalid queues.mail.reserved."+want {
			t.Errorf("%s\n got %s\nwant invalid queues.mail.reserved.%s", fields, got, want)
		}
	}
}

// TestReservedClassesAreKnownByTheirPlaces, whatever their order in the policy.
func TestReservedClassesAreKnownByTheirPlaces(t *testing.T) {
	t.Parallel()
	p, err := policy.Unmarshal([]byte(`{"queues":{"mail":{"max_running":9},"sms":{"classes":[{"name":"low","weight":1},{"name":"high","weight":3},{"name":"critical","weight":4}],"reserved":{"classes":["critical","high"],"percent":25,"lend":true}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Reserved(), []policy.ReservedSlots{{Queue: "sms", Classes: []int{1, 2}, Percent: 25, Lend: true}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestBadPartsOfTheGlobalLimitHaveOneClearError: as reserves of queues.
func TestBadPartsOfTheGlobalLimitHaveOneClearError(t *testing.T) {
	t.Parallel()
	const limit = `"global":{"tokens":4,"per":"1s"},`
	for fields, want := range map[string]string{
		limit + `"global_reserved":{"classes":["high"]}`:                                                                                   `.percent 0: allowed is 1 to 99`,
		limit + `"global_reserved":{"classes":["high"],"percent":100}`:                                                                     `.percent 100: allowed is 1 to 99`,
		limit + `"global_reserved":{"classes":["high"],"percent":80}`:                                                                      `.percent 80: allowed is so many that a token of the global burst is left to others, at least`,
		`"global":{"tokens":4,"per":"1s","enabled":false},"global_reserved":{"classes":["high"],"percent":80}`:                             `.percent 80: allowed is so many that a token of the global burst is left to others, at least`,
		limit + `"global_reserved":{"classes":["urgent"],"percent":20}`:                                                                    `.classes "urgent": allowed is a class of a queue: "high", "low", "medium"`,
		limit + `"global_reserved":{"classes":["low","low"],"percent":20}`:                                                                 `.classes "low": allowed is each class once`,
		limit + `"global_reserved":{"classes":[],"percent":20}`:                                                                            `.classes 0 classes: allowed is 1 to 128 classes`,
		limit + `"global_reserved":{"classes":["low"],"slots":20}`:                                                                         `.slots (unknown): allowed is one of classes, percent, lend`,
		`"global":{"tokens":9,"window":"24h","algorithm":"sliding_window"},"global_reserved":{"classes":["low"],"percent":20,"lend":true}`: `.lend true: allowed is false where the global limit is one of windows, of which nothing comes in meanwhile`,
		`"global_reserved":{"classes":["high"],"percent":20}`:                                                                              ` (there): allowed is none without a global limit, which may be disabled`,
		`"global":{"enabled":false},"global_reserved":{"classes":["high"],"percent":20}`:                                                   ` (there): allowed is none without a global limit, which may be disabled`,
	} {
		_, err := policy.Unmarshal([]byte(`{` + fields + `}`))
		if err == nil || !errors.Is(err, admission.ErrInvalid) {
			t.Errorf("%s: %v", fields, err)
			continue
		}
		if got := strings.TrimPrefix(err.Error(), "read policy: "); got != "invalid global_reserved"+want {
			t.Errorf("%s\n got %s\nwant invalid global_reserved%s", fields, got, want)
		}
	}
}

// TestAPartOfTheGlobalLimitIsKeptFromOthers: from all that are of no class for which it is, those among them that name none.
func TestAPartOfTheGlobalLimitIsKeptFromOthers(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`"tokens":1000,"per":"1s","burst":500`,
		`"tokens":10,"per":"1s","burst":7`,
		`"algorithm":"fixed_window","tokens":1001,"window":"24h"`,
		`"algorithm":"sliding_window","tokens":1001,"window":"1h"`,
	} {
		p, err := policy.Unmarshal([]byte(`{"global":{` + text + `},"queues":{"sms":{"classes":[{"name":"low","weight":1},{"name":"critical","weight":4}]}},"global_reserved":{"classes":["critical","high"],"percent":25}}`))
		if err != nil {
			t.Fatal(err)
		}
		c, err := p.Prepare()
		if err != nil {
			t.Fatal(err)
		}
		for _, way := range []struct {
			tenant, queue string
			class         admission.Priority
			kept          bool
		}{{"", "", "", true}, {"acme", "", "", true}, {"acme", "sms", "low", true}, {"acme", "sms", "critical", false}, {"acme", "mail", "high", false}} {
			limits := c.LimitsFor(way.tenant, way.queue, way.class)
			others, kept := limits[admission.LevelGlobal].Others()
			if kept != way.kept {
				t.Errorf("%+v: %t", way, kept)
			}
			if limits[admission.LevelGlobal].Tokens != p.Global.Tokens || limits[admission.LevelGlobal].Burst != p.Global.Burst {
				t.Errorf("%+v goes by another global limit: %+v", way, limits[admission.LevelGlobal])
			}
			if kept {
				if part := float64(others.Rate()) / float64(p.Global.Rate()); part > 0.75 || part < 0.749 || others.Burst != p.Global.Burst*3/4 {
					t.Errorf("%s: others have %v of the rate and a burst of %d", text, part, others.Burst)
				}
			}
			if least := limits.LeastBurst(1); kept && least > others.Burst {
				t.Errorf("%+v: a cost of %d is not refused for good", way, least)
			}
		}
	}
}

// TestBadBypassesHaveOneClearError: each is refused with the field, what it says and what is allowed.
func TestBadBypassesHaveOneClearError(t *testing.T) {
	t.Parallel()
	const limit, window = `"global":{"tokens":10,"per":"1s"},`, `"global":{"tokens":9,"window":"24h","algorithm":"sliding_window"},`
	for fields, want := range map[string]string{
		limit + `"bypass":{}`:                                                                      `classes 0 classes: allowed is 1 to 128 classes`,
		limit + `"bypass":{"classes":["critical"]}`:                                                `classes "critical": allowed is a class of a queue: "high", "low", "medium"`,
		limit + `"bypass":{"classes":["high","high"]}`:                                             `classes "high": allowed is each class once`,
		limit + `"bypass":{"classes":["high"],"reserve_percent":101}`:                              `reserve_percent 101: allowed is 0 to 100`,
		limit + `"bypass":{"classes":["high"],"reserve_percent":-1}`:                               `reserve_percent -1: allowed is 0 to 100`,
		limit + `"bypass":{"classes":["high"],"share_percent":101}`:                                `share_percent 101: allowed is 1 to 100`,
		limit + `"bypass":{"classes":["high"],"share_percent":-1}`:                                 `share_percent -1: allowed is 1 to 100`,
		limit + `"bypass":{"classes":["high"],"critical_share":10}`:                                `critical_share (unknown): allowed is one of classes, reserve_percent, share_percent`,
		limit + `"global_reserved":{"classes":["low"],"percent":20},"bypass":{"classes":["high"]}`: `classes "high": allowed is classes of global_reserved, which is there: "low"`,
		`"bypass":{"classes":["high"],"reserve_percent":20}`:                                       `reserve_percent 20: allowed is 0 without a global limit, which may be disabled`,
		window + `"bypass":{"classes":["high"],"reserve_percent":20}`:                              `reserve_percent 20: allowed is 0 where the global limit is one of windows, of which nothing comes in to make up for it`,
	} {
		_, err := policy.Unmarshal([]byte(`{` + fields + `}`))
		if err == nil || !errors.Is(err, admission.ErrInvalid) {
			t.Errorf("%s: %v", fields, err)
			continue
		}
		if got := strings.TrimPrefix(err.Error(), "read policy: "); got != "invalid bypass."+want {
			t.Errorf("%s\n got %s\nwant invalid bypass.%s", fields, got, want)
		}
	}
}

// TestWhoGoesBesideLimits: jobs of the classes that are named, of whatever queue, with a tenth of their tenant's limit where nothing else is said, and none of others
// or of tenants that have no limit.
func TestWhoGoesBesideLimits(t *testing.T) {
	t.Parallel()
	p, err := policy.Unmarshal([]byte(`{"global":{"tokens":1000,"per":"1s","burst":500},"tenants":{"acme":{"limit":{"tokens":100,"per":"1m","burst":45}},"free":{"limit":{"enabled":false}},"small":{"limit":{"tokens":9,"per":"1s"}},` +
		`"daily":{"limit":{"algorithm":"fixed_window","tokens":1005,"window":"24h"}}},"queues":{"sms":{"classes":[{"name":"low","weight":1},{"name":"critical","weight":4}]}},` +
		`"bypass":{"classes":["critical","high"],"reserve_percent":20}}`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	if b := c.Bypass(); b.SharePercent != 10 || b.ReservePercent != 20 {
		t.Errorf("%+v", b)
	}
	for _, way := range []struct {
		tenant, queue string
		class         admission.Priority
		tokens, burst admission.Tokens
		per           time.Duration
	}{
		{"acme", "sms", "critical", 100, 4, 10 * time.Minute},
		{"acme", "mail", "high", 100, 4, 10 * time.Minute},
		{"daily", "mail", "high", 100, 100, 24 * time.Hour},
		{"acme", "sms", "low", 0, 0, 0},
		{"acme", "", "", 0, 0, 0},
		{"free", "mail", "high", 0, 0, 0},
		{"small", "mail", "high", 0, 0, 0},
	} {
		limits := c.LimitsFor(way.tenant, way.queue, way.class)
		share, bypasses := limits[admission.LevelGlobal].Share(&limits[admission.LevelTenant])
		if bypasses != (way.burst > 0) || bypasses && (share.Tokens != way.tokens || share.Burst != way.burst || share.Per != way.per) {
			t.Errorf("%+v: %t, %+v", way, bypasses, share)
		}
		if reserve := limits[admission.LevelGlobal].Reserve(500); bypasses && reserve != 100 {
			t.Errorf("%+v: the reserve is %d of 500", way, reserve)
		}
	}
}
