package redisstore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestQueuesNobodyNamedHaveClasses: those of the queue Every hold for each queue without settings, also for one that loses its own, and change in no
// queue in which jobs wait in a class that would be another.
func TestQueuesNobodyNamedHaveClasses(t *testing.T) {
	t.Parallel()
	urgent := []admission.Class{{Name: "critical", Weight: 4}, {Name: "high", Weight: 3}, {Name: "medium", Weight: 2}, {Name: "low", Weight: 1}}
	settings := func(queue string, classes []admission.Class) store.QueueSettings {
		return store.QueueSettings{Queue: queue, Classes: classes, Horizon: time.Hour}
	}
	inRedis, inMemory, _ := both(t)
	for name, s := range map[string]store.Partition{"redis": inRedis, "memory": inMemory} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			version := int64(0)
			put := func(want error, queues ...store.QueueSettings) {
				t.Helper()
				err := s.PutPolicy(t.Context(), store.PolicyUpdate{Expected: version, Version: version + 1, Text: []byte("{}"), Window: time.Minute, Queues: queues})
				if !errors.Is(err, want) {
					t.Fatalf("version %d: %v, want %v", version+1, err, want)
				}
				if want == nil {
					version++
				}
			}
			enqueue := func(queue, id string, class int) {
				t.Helper()
				j := admission.NewJob("acme", queue, "t", nil)
				j.ID = id
				verdicts, err := s.Admit(t.Context(), version, []store.Candidate{{Job: &j, Class: class, Limits: &[admission.Levels]admission.Limit{}}})
				check(t, err)
				check(t, verdicts[0].Err())
			}
			classes := func(queue string) string {
				t.Helper()
				var names strings.Builder
				q, err := s.Queue(t.Context(), queue)
				check(t, err)
				for _, c := range q.Classes {
					names.WriteString(string(c.Name) + " ")
				}
				return names.String()
			}
			put(nil, settings(store.Every, urgent), settings("named", admission.DefaultClasses()))
			enqueue("mail", "first", 3)
			enqueue("named", "second", 2)
			if mail, named := classes("mail"), classes("named"); mail != "critical high medium low " || named != "high medium low " {
				t.Errorf("classes are %s and %s", mail, named)
			}
			put(store.ErrClassInUse, settings("named", admission.DefaultClasses()))                                    // low of mail would be none
			put(store.ErrClassInUse, settings(store.Every, urgent))                                                    // low of named would be medium
			put(store.ErrClassInUse, settings(store.Every, urgent[:3]), settings("named", admission.DefaultClasses())) // the same of mail
			put(nil, settings(store.Every, urgent[:3]), settings("named", admission.DefaultClasses()), settings("mail", append(urgent[:4:4], admission.Class{Name: "bulk", Weight: 1})))
			enqueue("fax", "third", 0)
			if fax, mail := classes("fax"), classes("mail"); fax != "critical high medium " || mail != "critical high medium low bulk " {
				t.Errorf("classes are %s and %s", fax, mail)
			}
			_, _, err := s.ClearTenant(t.Context(), "acme", "fax", store.Intervention{})
			check(t, err)
			put(nil, settings("named", admission.DefaultClasses()), settings("mail", urgent))
			enqueue("fax", "fourth", 2)
			if fax := classes("fax"); fax != "high medium low " {
				t.Errorf("without what is of each queue the classes are %s", fax)
			}
		})
	}
}

// TestQueuesNobodyNamedAreServedByTheirClasses: of a backlog of each class of the queue Every ten jobs run as 4:3:2:1.
func TestQueuesNobodyNamedAreServedByTheirClasses(t *testing.T) {
	t.Parallel()
	inRedis, inMemory, _ := both(t)
	for name, s := range map[string]store.Partition{"redis": inRedis, "memory": inMemory} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			urgent := []admission.Class{{Name: "critical", Weight: 4}, {Name: "high", Weight: 3}, {Name: "medium", Weight: 2}, {Name: "low", Weight: 1}}
			check(t, s.PutPolicy(t.Context(), store.PolicyUpdate{
				Version: 1, Text: []byte("{}"), Window: time.Minute, Queues: []store.QueueSettings{{Queue: store.Every, Classes: urgent, Horizon: time.Hour}},
			}))
			for class := range urgent {
				for n := range 10 {
					j := admission.NewJob("acme", "mail", "t", nil)
					j.ID, j.Priority = fmt.Sprint(class, n), urgent[class].Name
					verdicts, err := s.Admit(t.Context(), 1, []store.Candidate{{Job: &j, Class: class, Limits: &[admission.Levels]admission.Limit{}}})
					check(t, err)
					check(t, verdicts[0].Err())
				}
			}
			pool := store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}
			_, err := s.Register(t.Context(), "w", pool, 10, time.Minute)
			check(t, err)
			leases, err := s.Read(t.Context(), "w", pool.ID(), 10, -1, false)
			check(t, err)
			served := make([]int, len(urgent))
			for _, l := range leases {
				served[l.Job.ID[0]-'0']++
			}
			if !slices.Equal(served, []int{4, 3, 2, 1}) {
				t.Errorf("served %v", served)
			}
		})
	}
}
