//go:build unix

package outboxtest

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// StormVariable is how long a storm lasts.
const StormVariable = "HEADGATE_OUTBOX_STORM"

// storm is a database, a Redis, and who works on them.
type storm struct {
	database *Database
	redis    *redistest.Server
	names    []string
	running  []*process
	kills    map[string]int
}

// Storm kills applications, relays, the database and Redis at random moments, for so long, or as StormVariable says. In the end each committed
// order is one job, and there is no other: jobs stay where they are, so that a list of them is all that ever entered. What Redis has confirmed it
// has written (appendfsync always).
func Storm(t *testing.T, d *Database, last time.Duration) {
	t.Helper()
	if text := os.Getenv(StormVariable); text != "" {
		var err error
		last, err = time.ParseDuration(text)
		must(t, err)
	}
	s := &storm{database: d, redis: redistest.Start(t, redistest.Options{AppendFsync: "always"}), kills: map[string]int{}}
	db := d.open(t)
	must(t, d.Dialect.Migrate(t.Context(), db))
	_, err := db.ExecContext(t.Context(), "CREATE TABLE orders (id varchar(64) PRIMARY KEY)")
	must(t, err)
	s.remember(t)

	s.names = []string{roleApplication, roleApplication, roleRelay, roleRelay}
	for _, name := range s.names {
		s.running = append(s.running, s.start(t, name))
	}
	s.blow(t, last)
	s.stop(t, roleApplication)
	// The database may still commit what an application sent before it was killed: whoever renames a table waits for all who have written to it.
	_, err = s.database.open(t).ExecContext(t.Context(), "ALTER TABLE orders RENAME TO placed")
	must(t, err)
	took := s.drain(t)
	s.stop(t, roleRelay)
	committed := s.count(t)
	t.Logf("%d committed orders, each one job; killed %v; the rest was moved in %s", committed, s.kills, took)
}

// stormWindow is how long ids are remembered in a storm: a row that nobody could settle for a window is dead.
const stormWindow = time.Hour

// remember stores a policy by which ids are remembered for as long.
func (s *storm) remember(t *testing.T) {
	t.Helper()
	text, err := policy.Marshal(policy.Policy{Version: 1, DedupWindow: stormWindow})
	must(t, err)
	deployment, err := (&part{Redis: s.redis.Addr()}).open(t.Context())
	must(t, err)
	defer deployment.Close()
	must(t, deployment.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: text, Window: stormWindow}))
}

func (s *storm) start(t *testing.T, name string) *process {
	t.Helper()
	return start(t, name, s.database, part{Redis: s.redis.Addr(), Window: stormWindow})
}

// blow kills, and starts again.
func (s *storm) blow(t *testing.T, last time.Duration) {
	t.Helper()
	for end := time.Now().Add(last); time.Now().Before(end); {
		pause(time.Duration(50+rand.IntN(250)) * time.Millisecond)
		switch i := rand.IntN(len(s.names) + 2); {
		case i < len(s.names):
			s.running[i].kill(t)
			s.running[i] = s.start(t, s.names[i])
			s.kills[s.names[i]]++
		case i == len(s.names) && s.database.Kill != nil:
			s.database.Kill(t)
			s.database.Restart(t)
			s.kills["database"]++
		default:
			began := time.Now()
			s.redis.Kill(t)
			s.redis.Restart(t)
			s.kills["redis"]++
			s.answered(t)
			pause(time.Since(began)) // The more jobs there are the longer it reads them; were it away most of the time, all would wait for it alone.
		}
	}
}

// answered waits until Redis has read what it had written.
func (s *storm) answered(t *testing.T) {
	t.Helper()
	deployment, err := (&part{Redis: s.redis.Addr()}).open(t.Context())
	must(t, err)
	_ = deployment.Close()
}

func (s *storm) stop(t *testing.T, role string) {
	t.Helper()
	for i, name := range s.names {
		if name == role {
			s.running[i].kill(t)
		}
	}
}

// drain waits until the relays have moved all, while they move any within a minute.
func (s *storm) drain(t *testing.T) time.Duration {
	t.Helper()
	db, began := s.database.open(t), time.Now()
	var status outbox.Status
	least, end := int64(math.MaxInt64), began.Add(time.Minute)
	for ; ; pause(20 * time.Millisecond) {
		var err error
		if status, err = s.database.Dialect.Status(t.Context(), db); err == nil && status.Rows == 0 {
			break
		}
		if err == nil && status.Rows < least {
			least, end = status.Rows, time.Now().Add(time.Minute)
		}
		if time.Now().After(end) {
			t.Fatalf("for a minute the outbox has held %+v, %v", status, err)
		}
	}
	if status.Dead != 0 {
		t.Errorf("%d rows are dead", status.Dead)
	}
	return time.Since(began)
}

// count holds orders and jobs equal, and returns how many there are.
func (s *storm) count(t *testing.T) int {
	t.Helper()
	jobs := map[string]int{} // of each order
	rows, err := s.database.open(t).QueryContext(t.Context(), "SELECT id FROM placed")
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		must(t, rows.Scan(&id))
		jobs[id] = 0
	}
	must(t, rows.Err())
	committed := len(jobs)
	deployment, err := (&part{Redis: s.redis.Addr()}).open(t.Context())
	must(t, err)
	defer deployment.Close()
	end := time.Now().Add(time.Minute)
	for query := (store.ListQuery{Limit: store.MaxPage}); ; {
		page, err := deployment.List(t.Context(), query)
		if errors.Is(err, admission.ErrUnavailable) && time.Now().Before(end) { // It was restarted a moment ago, and the machine may be slow.
			continue
		}
		must(t, err)
		for _, j := range page.Jobs {
			if _, there := jobs[j.Key.ID]; !there {
				t.Errorf("job %s is of no order", j.Key.ID)
			}
			jobs[j.Key.ID]++
		}
		if query.Cursor = page.Cursor; page.Cursor == "" {
			break
		}
	}
	for id, n := range jobs {
		if n != 1 {
			t.Errorf("order %s is %d jobs", id, n)
		}
	}
	if committed == 0 {
		t.Error("no order was made")
	}
	return committed
}
