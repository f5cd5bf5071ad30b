package redisstore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
)

func TestTheNumberOfPartitionsIsThatOfTheFirstStart(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	open := func(prefix string, partitions int) (*many, error) {
		return openMany(t.Context(), client, Config{Prefix: prefix, Partitions: partitions})
	}
	four, one := redistest.Prefix(t), redistest.Prefix(t)+"-one"
	for _, c := range []struct {
		prefix        string
		wanted, count int // count 0 is a refusal
	}{
		{four, 4, 4},
		{four, 0, 4},
		{four, 1, 0},
		{four, 5, 0},
		{four, 4, 4},
		{one, 0, 1},
		{one, 2, 0},
		{one, 1, 1},
	} {
		st, err := open(c.prefix, c.wanted)
		if c.count == 0 {
			if field, ok := errors.AsType[*admission.FieldError](err); !errors.Is(err, admission.ErrPartitions) || !ok || field.Field != "partitions" {
				t.Errorf("%d partitions of %s: %v", c.wanted, c.prefix, err)
			}
			continue
		}
		check(t, err)
		if got := len(st.parts); got != c.count {
			t.Errorf("%d partitions of %s, want %d", got, c.prefix, c.count)
		}
	}
	st, err := open(four, 0)
	check(t, err)
	for i, part := range st.parts {
		stored := client.HGet(t.Context(), part.Keys().State(), redisconn.LayoutField).Val()
		if part.Keys() != keyspace.New(four, i) || stored != "4" {
			t.Errorf("partition %d at %s says %q", i, part.Keys().State(), stored)
		}
	}
	if client.HExists(t.Context(), keyspace.New(one, 0).State(), redisconn.LayoutField).Val() {
		t.Error("a deployment of one partition has got a field that older ones do not have")
	}
}

func TestATenantHasOnePartition(t *testing.T) {
	t.Parallel()
	st, err := openMany(t.Context(), redistest.Shared(t).Client(t), Config{Prefix: redistest.Prefix(t), Partitions: 3})
	check(t, err)
	seen := map[int]bool{}
	for i := range 30 {
		tenant := fmt.Sprintf("tenant-%d", i)
		at := st.PartitionOf(tenant)
		seen[at] = true
		if st.of(tenant) != st.parts[at] {
			t.Errorf("%s is in %d and not there", tenant, at)
		}
	}
	if len(seen) != 3 {
		t.Errorf("30 tenants in partitions %v", seen)
	}
}
