package bank

import (
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
)

// ofQueues is a way that has only queues' limits: a bucket of five tokens, a token a second.
var ofQueues = [admission.Levels]admission.Limit{
	{Disabled: true}, {Disabled: true}, {Tokens: 1, Per: time.Second, Burst: 5}, {Disabled: true},
}

func begin(b *Bank, now int64) *Charge {
	c := &Charge{}
	c.Begin(b, now, now, buckets.Instant(now), 0, nil)
	return c
}

func take(t *testing.T, c *Charge, tenant, queue string, want admission.Decision) {
	t.Helper()
	if v := c.Take(c.PathOf(&ofQueues, tenant, queue, ""), 4); v.Decision != want {
		t.Errorf("%s/%s: %+v", tenant, queue, v)
	}
}

// TestBucketsThatAreFullAreForgotten, all of a tenant at a time, and a little later.
func TestBucketsThatAreFullAreForgotten(t *testing.T) {
	t.Parallel()
	const second = 1_000_000
	b := New()
	c := begin(&b, second)
	for i := range 20 {
		take(t, c, "acme", strconv.Itoa(i), admission.Admitted)
	}
	take(t, c, "bakery", "mail", admission.Admitted)
	if !c.Commit() || b.set.Len() != 21 || b.Left("acme", second) != 6*second || b.Left("nobody", second) != 0 {
		t.Fatalf("%d buckets, %d us", b.set.Len(), b.Left("acme", second))
	}
	c = begin(&b, 3.5*second)
	take(t, c, "acme", "0", admission.Refused)
	take(t, c, "bakery", "fax", admission.Admitted)
	c.Commit()
	begin(&b, 7*second)
	if b.set.Len() != 2 || len(b.purses) != 1 {
		t.Errorf("%d buckets of %d tenants are left, want 2 of one", b.set.Len(), len(b.purses))
	}
	b.KeepFor(60*second, 7*second)
	begin(&b, 66*second)
	if b.set.Len() != 2 {
		t.Error("what was to be kept has gone")
	}
	if begin(&b, 67*second); b.set.Len() != 0 {
		t.Error("nothing was forgotten")
	}
}

func TestAChargeIsTakenBack(t *testing.T) {
	t.Parallel()
	b := New()
	c := begin(&b, 1)
	take(t, c, "acme", "mail", admission.Admitted)
	c.Commit()
	before := b.set.Bucket("acme:mail")
	c = begin(&b, 500_000)
	take(t, c, "acme", "mail", admission.Refused)
	for i := range 3 * fewTouched {
		take(t, c, "acme", strconv.Itoa(i), admission.Admitted)
		take(t, c, "acme", strconv.Itoa(i), admission.Refused)
	}
	c.Back()
	if c.Commit() || b.set.Len() != 1 || b.set.Bucket("acme:mail") != before {
		t.Errorf("%d buckets, %+v", b.set.Len(), b.set.Bucket("acme:mail"))
	}
}

// TestFullBucketsMakeRoom: of a tenant with many, some that are full go with each call that brings a new one.
func TestFullBucketsMakeRoom(t *testing.T) {
	t.Parallel()
	b := New()
	c := begin(&b, 1)
	for i := range 2 * manyBuckets {
		take(t, c, "acme", strconv.Itoa(i), admission.Admitted)
	}
	c.Commit()
	b.KeepFor(1e9, 1)
	c = begin(&b, 10_000_000)
	take(t, c, "acme", "new", admission.Admitted)
	c.Commit()
	if want := 2*manyBuckets + 1 - sweepMost; b.set.Len() != want {
		t.Errorf("%d buckets, want %d", b.set.Len(), want)
	}
	if !b.Remove("acme:new") || b.Remove("acme:new") || b.Remove(admission.Global) {
		t.Error("what is removed is not what was there")
	}
}
