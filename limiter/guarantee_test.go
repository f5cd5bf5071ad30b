package limiter

import (
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
)

func TestTheGuaranteeIsTheBoundInForce(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	limits := limited(admission.PerSecond(10).WithBurst(80), admission.PerSecond(5).WithBurst(40))
	for want, config := range map[string]Config{
		"acme: over all time at most 40 + 5/s, in any window 20 more; without redis: share, and up to 40 taken off on return":  {},
		"acme: over all time at most 40 + 5/s, in any window no more; without redis: share, and up to 40 taken off on return":  {Strict: true},
		"acme: over all time at most 40 + 5/s, in any window no more; without redis: closed, and up to 40 taken off on return": {Exact: true, OutageAt: map[admission.Scope]Outage{"acme": OutageClosed}},
	} {
		config.Policy = limits
		l := start(t, store, config)
		bound, err := l.Guarantee(t.Context(), "acme")
		check(t, err)
		if bound.String() != want {
			t.Errorf("%s, want %s", bound, want)
		}
		bound, err = l.Guarantee(t.Context(), "acme:mail")
		check(t, err)
		if !bound.Unlimited {
			t.Errorf("%+v", bound)
		}
	}
	l := start(t, openParts(t), Config{Policy: limits})
	for scope, want := range map[admission.Scope]string{
		admission.Global: "global: over all time at most 80 + 10/s in 3 parts, in any window 39 more; without redis: share, and up to 80 taken off on return",
		"acme":           "acme: over all time at most 40 + 5/s, in any window 20 more; without redis: share, and up to 40 taken off on return",
	} {
		bound, err := l.Guarantee(t.Context(), scope)
		check(t, err)
		if bound.String() != want {
			t.Errorf("%s, want %s", bound, want)
		}
	}
	if _, err := start(t, store, Config{}).Guarantee(t.Context(), "a:b:c:d"); err == nil {
		t.Error("no error for what is no scope")
	}
}
