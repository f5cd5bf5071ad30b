package redisstore

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// withZero is an id that has a byte of zero where it is kept, as one in thirty has of those that are made by the time.
func withZero() string {
	id := uuid.New()
	id[10] = 0
	return id.String()
}

func TestJobsWhoseIDsHaveAZeroByteGoToTheSecondRedis(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for range 2 + 8 { // two in lanes, eight aside
		j := mail("acme", withZero())
		v := p.offerAt(1, j)
		check(t, v.Err())
	}
	for range 5 {
		_, err := p.mover.Move(t.Context())
		check(t, err)
	}
	if c, s := p.sum(); s.Away == 0 {
		t.Errorf("none of %d jobs that are aside is in the second Redis", c.Spilled)
	}
	if copies := p.client.SCard(t.Context(), p.store.Keys().Base()+"copies").Val(); copies != 0 {
		t.Errorf("%d copies are to be dropped", copies)
	}
}

func TestTheHolderOfAUniqueKeyIsToldWhole(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	limits := &[admission.Levels]admission.Limit{}
	holder := mail("acme", withZero())
	holder.Unique = admission.Unique{Key: "k", For: time.Hour, Release: admission.ReleaseAtEnd}
	other := holder
	other.ID = "other"
	v, err := y.store.Admit(t.Context(), 0, []store.Candidate{{Job: &holder, Class: 1, Limits: limits}, {Job: &other, Class: 1, Limits: limits}})
	check(t, err)
	if v[1].Detail != holder.ID {
		t.Errorf("%s holds it, and it is told %q", holder.ID, v[1].Detail)
	}
}
