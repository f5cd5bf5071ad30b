package scheduler_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestSharesFollowUse has all jobs of a queue in one of three partitions, where most of the queue's cap is to go: by the schedulers
// of all partitions, and by that of one alone while those of the first are gone.
func TestSharesFollowUse(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(store.Deployment) (*scheduler.Scheduler, error){
		"of all": func(s store.Deployment) (*scheduler.Scheduler, error) { return scheduler.New(s, scheduler.Config{}) },
		"of another": func(s store.Deployment) (*scheduler.Scheduler, error) {
			return scheduler.NewOf(s, 1, scheduler.Config{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: 3})
			if err != nil {
				t.Fatal(err)
			}
			const most = 60
			part := st.Partitions()[1]
			for i := range most {
				(&bench{tb: t, store: part}).admit(strconv.Itoa(i))
			}
			if err := st.PutPolicy(t.Context(), store.PolicyUpdate{
				Version: 1, Text: []byte("{}"), Window: time.Minute, Edit: "edit", Caps: []store.Cap{{Gate: store.QueueGate("mail"), Limit: most}},
			}); err != nil {
				t.Fatal(err)
			}
			newBench(t, part)
			s, err := of(st)
			if err != nil {
				t.Fatal(err)
			}
			start(t, s)
			await(t, "the cap to be where the jobs are", func() bool {
				c, err := part.Census(t.Context())
				return err == nil && c.Ready >= most*9/10
			})
		})
	}
}
