package admission

import (
	"errors"
	"testing"
	"time"
)

func TestScopesHaveParts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scope         Scope
		level         Level
		tenant, queue string
		class         Priority
	}{
		{Global, LevelGlobal, "", "", ""},
		{"acme", LevelTenant, "acme", "", ""},
		{"acme:mail", LevelQueue, "acme", "mail", ""},
		{"a/b@c:mail.x:high", LevelPriority, "a/b@c", "mail.x", High},
		{"acme:global", LevelQueue, "acme", "global", ""},
	} {
		tenant, queue, class, err := c.scope.Parts()
		if err != nil || tenant != c.tenant || queue != c.queue || class != c.class || c.scope.Level() != c.level {
			t.Errorf("%s: %q %q %q at level %s, %v", c.scope, tenant, queue, class, c.scope.Level(), err)
		}
		if again := ScopeAt(c.scope.Level(), tenant, queue, class); again != c.scope {
			t.Errorf("%s became %s", c.scope, again)
		}
	}
	for _, bad := range []Scope{"", ":", "acme:", ":mail", "acme::high", "global:mail", "a:b:c:d", "acme:ma il", "acme:mail\x00", "a{0}", "äcme"} {
		if _, _, _, err := bad.Parts(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// FuzzScope: a scope that is taken is the one that its parts make, and so nobody else's.
func FuzzScope(f *testing.F) {
	for _, seed := range []string{"global", "acme", "acme:mail", "acme:mail:high", "acme:", ":", "a:b:c:d", "global:mail", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		scope := Scope(text)
		tenant, queue, class, err := scope.Parts()
		if err != nil {
			return
		}
		if again := ScopeAt(scope.Level(), tenant, queue, class); again != scope {
			t.Errorf("%q became %q", text, again)
		}
		if tenant != "" && ValidateTenant(tenant) != nil {
			t.Errorf("%q has tenant %q", text, tenant)
		}
	})
}

func TestDurationTextIsShortAndExact(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		duration time.Duration
		want     string
	}{
		{time.Second, "1s"},
		{10 * time.Second, "10s"},
		{time.Minute, "1m"},
		{10 * time.Minute, "10m"},
		{time.Hour, "1h"},
		{20 * time.Hour, "20h"},
		{time.Hour + time.Second, "1h0m1s"},
		{90 * time.Minute, "1h30m"},
		{1500 * time.Microsecond, "1.5ms"},
	} {
		got := DurationText(c.duration)
		if parsed, err := time.ParseDuration(got); got != c.want || parsed != c.duration || err != nil {
			t.Errorf("DurationText(%s) = %s, want %s", c.duration, got, c.want)
		}
	}
}
