package redisstore

import (
	"encoding/binary"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestTagsOfTenantsThatPassedAreForgotten: beside one with a backlog tenants come and go by the thousand, whose jobs run, or expire behind one that ran. What is kept
// of them is what virtual time has not passed, and no more of the rest than one call adds (law L12).
func TestTagsOfTenantsThatPassedAreForgotten(t *testing.T) {
	t.Parallel()
	const slots, newcomers, rounds = 64, 24, 100
	for name, second := range map[string]bool{"of one job": false, "of two, of which one expires": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newEdge(t)
			y.register(slots)
			back := make([]admission.Job, 6000)
			for i := range back {
				back[i] = mail("flood", strconv.Itoa(i))
			}
			y.admit(back...)
			most := 0
			for round := range rounds {
				leases, err := y.store.Read(t.Context(), "w1", yardPool.ID(), slots, -1, false)
				check(t, err)
				var jobs []admission.Job
				for i := range newcomers {
					for job := range 2 {
						j := mail("tenant-"+strconv.Itoa(round*newcomers+i), strconv.Itoa(job))
						if j.Cost = 100; second {
							j.Deadline = time.UnixMicro(y.now).Add(time.Second)
						} else if job > 0 {
							j.Tenant = "other-" + j.Tenant
						}
						jobs = append(jobs, j)
					}
				}
				y.admit(jobs...)
				ends := make([]store.Finish, len(leases))
				for i := range leases {
					ends[i] = leases[i].Finish(store.Complete)
				}
				_, _, err = y.store.Finish(t.Context(), yardPool.ID(), "w1", ends)
				check(t, err)
				if second {
					y.pass(2 * time.Second)
					y.promoteAll()
					y.register(slots)
				}
				most = max(most, y.passed())
			}
			if most > 2*slots+2*newcomers {
				t.Errorf("%d tags are kept that virtual time has passed, after %d tenants", most, 2*newcomers*rounds)
			}
		})
	}
}

// passed is how many tags are kept of the class medium of mail that its virtual time has passed.
func (y *yard) passed() int {
	y.tb.Helper()
	const virtualTime = 1 + 8*(4+2) // behind the sign, the phase and pace, and what the class high has
	text, err := y.client.HGet(y.tb.Context(), y.store.Keys().State(), "q:mail").Result()
	check(y.tb, err)
	v := math.Float64frombits(binary.LittleEndian.Uint64([]byte(text[virtualTime:])))
	n, err := y.client.ZCount(y.tb.Context(), y.store.Keys().Base()+"idle:1:mail", "-inf", strconv.FormatFloat(v, 'g', 17, 64)).Result()
	check(y.tb, err)
	return int(n)
}
