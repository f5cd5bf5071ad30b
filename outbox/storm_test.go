//go:build unix

package outbox_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/store"
)

// stormVariable is how long the storm lasts; three seconds unless told otherwise.
const stormVariable = "HEADGATE_OUTBOX_STORM"

// TestStorm kills applications, relays, PostgreSQL and Redis at random moments. In the end each committed order is one job, and there is no
// other: jobs stay where they are, so that a list of them is all that ever entered. What Redis has confirmed it has written (appendfsync always).
func TestStorm(t *testing.T) {
	t.Parallel()
	last := 3 * time.Second
	if text := os.Getenv(stormVariable); text != "" {
		var err error
		last, err = time.ParseDuration(text)
		must(t, err)
	}
	pg, rs := pgtest.Start(t), redistest.Start(t, redistest.Options{AppendFsync: "always"})
	db := pg.Open(t)
	must(t, outbox.Migrate(t.Context(), db))
	exec1(t, db, "CREATE TABLE orders (id text PRIMARY KEY)")

	names := []string{"application", "application", "relay", "relay"}
	running := make([]*exec.Cmd, len(names))
	kill := func(i int) {
		must(t, running[i].Process.Kill())
		_ = running[i].Wait() // It says that it was killed.
	}
	start := func(i int) { running[i] = role(t, names[i], pg.URL(), rs.Addr()) }
	for i := range names {
		start(i)
	}
	kills := map[string]int{}
	for end := time.Now().Add(last); time.Now().Before(end); {
		time.Sleep(time.Duration(50+rand.IntN(250)) * time.Millisecond)
		switch i := rand.IntN(len(names) + 2); {
		case i < len(names):
			kill(i)
			start(i)
			kills[names[i]]++
		case i == len(names):
			pg.Kill(t)
			pg.Restart(t)
			kills["postgresql"]++
		default:
			rs.Kill(t)
			rs.Restart(t)
			kills["redis"]++
		}
	}
	for i, name := range names {
		if name == "application" {
			kill(i)
		}
	}
	db = pg.Open(t)
	began := time.Now()
	var status outbox.Status
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		var err error
		if status, err = outbox.StatusOf(t.Context(), db); err == nil && status.Rows == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after a minute the outbox holds %+v, %v", status, err)
		}
	}
	took := time.Since(began)
	for i, name := range names {
		if name == "relay" {
			kill(i)
		}
	}
	if status.Dead != 0 {
		t.Errorf("%d rows are dead", status.Dead)
	}

	orders := map[string]int{}
	rows, err := db.QueryContext(t.Context(), "SELECT id FROM orders")
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		must(t, rows.Scan(&id))
		orders[id] = 0
	}
	must(t, rows.Err())
	committed := len(orders)
	s, err := (&storeOptions{addr: rs.Addr()}).open(t.Context())
	must(t, err)
	defer s.Close()
	for query := (store.ListQuery{Limit: store.MaxPage}); ; {
		page, err := s.List(t.Context(), query)
		must(t, err)
		for _, j := range page.Jobs {
			if _, there := orders[j.Key.ID]; !there {
				t.Errorf("job %s is of no order", j.Key.ID)
			}
			orders[j.Key.ID]++
		}
		if query.Cursor = page.Cursor; page.Cursor == "" {
			break
		}
	}
	for id, n := range orders {
		if n != 1 {
			t.Errorf("order %s is %d jobs", id, n)
		}
	}
	if committed == 0 {
		t.Error("no order was made")
	}
	t.Logf("%d committed orders, each one job; killed %v; the rest was moved in %s", committed, kills, took)
}
