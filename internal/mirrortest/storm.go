//go:build unix

package mirrortest

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/mirror"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/store/redisstore"
)

// roleVariable tells a process of the test's binary that it is a mirror.
const roleVariable = "HEADGATE_MIRROR_ROLE"

// part is what such a process is told.
type part struct {
	Driver, Source string
	Dialect        outbox.Dialect
	Redis, Prefix  string
}

// IsRole says that this process is a mirror.
func IsRole() bool { return os.Getenv(roleVariable) != "" }

// Main runs the tests, or a mirror.
func Main(m *testing.M) {
	text := os.Getenv(roleVariable)
	if text == "" {
		redistest.Main(m)
		return
	}
	var p part
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		err = p.run(context.Background()) //nolint:forbidigo // It is a main function.
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func (p *part) run(ctx context.Context) error {
	db, err := sql.Open(p.Driver, p.Source)
	if err != nil {
		return err
	}
	for {
		s, err := redisstore.Connect(ctx, "redis://"+p.Redis, redisstore.Config{Prefix: p.Prefix})
		if err != nil {
			<-time.After(20 * time.Millisecond) // It may be about to start.
			continue
		}
		m, err := mirror.New(db, s, mirror.Config{Dialect: p.Dialect, Prefix: p.Prefix, Poll: 10 * time.Millisecond, Usage: 10 * time.Millisecond})
		if err != nil {
			return err
		}
		return m.Run(ctx)
	}
}

func (p *part) start(tb testing.TB) *exec.Cmd {
	tb.Helper()
	self, err := os.Executable()
	must(tb, err)
	text, err := json.Marshal(p)
	must(tb, err)
	c := exec.CommandContext(tb.Context(), self)
	c.Env = append(os.Environ(), roleVariable+"="+string(text))
	must(tb, c.Start())
	return c
}

// Storm kills two mirrors, the database and Redis at random moments, for so long, while operators act and tenants use. In the end the database has
// each entry once and equal to Redis's, and knows of no gap. What Redis has confirmed it has written (appendfsync always).
func Storm(t *testing.T, d *Database, last time.Duration) {
	t.Helper()
	redis := redistest.Start(t, redistest.Options{AppendFsync: "always"})
	b := NewBench(t, d, redis)
	must(t, b.Policy(t.Context()))
	p := &part{Driver: d.Driver, Source: d.Source, Dialect: d.Dialect, Redis: redis.Addr(), Prefix: b.prefix}
	running, kills := []*exec.Cmd{p.start(t), p.start(t)}, map[string]int{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	acted := make(chan int)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			_ = b.Act(ctx) // Redis may be away; what it has is what is compared.
			if n%50 == 49 {
				_ = b.Policy(ctx)
			}
			<-time.After(time.Millisecond)
		}
		acted <- n
	}()
	for end := time.Now().Add(last); time.Now().Before(end); {
		<-time.After(time.Duration(30+rand.IntN(200)) * time.Millisecond)
		switch i := rand.IntN(8); {
		case i < 6:
			must(t, running[i%2].Process.Kill())
			_ = running[i%2].Wait() // It says that it was killed.
			running[i%2] = p.start(t)
			kills["mirror"]++
		case i == 6 && d.Kill != nil:
			d.Kill(t)
			d.Restart(t)
			kills["database"]++
		case i == 7:
			redis.Kill(t)
			redis.Restart(t)
			kills["redis"]++
		}
	}
	stop()
	n := <-acted
	b.until(t, "Redis answers", func() bool { // It may have been restarted a moment ago.
		_, err := b.store.Vitals(t.Context())
		return err == nil
	})
	b.until(t, "the mirrors have copied all", func() bool {
		var rows int
		err := b.db.QueryRowContext(t.Context(), `SELECT count(*) FROM headgate_audit`).Scan(&rows)
		return err == nil && rows == len(b.audit(t))
	})
	for _, c := range running {
		must(t, c.Process.Kill())
		_ = c.Wait()
	}
	b.until(t, "a last look works", func() bool { return b.Mirror(t, nil).Once(t.Context()) == nil }) // On SQLite the lease of the killed one ends first.
	b.Equal(t)
	if gaps := b.rows(t, `SELECT source, lost FROM headgate_mirror_gaps`); len(gaps) != 0 {
		t.Errorf("the gaps are %q", gaps)
	}
	t.Logf("%d acts, killed %v, %d rows of the audit", n, kills, len(b.audit(t)))
	if kills["mirror"] == 0 || n == 0 {
		t.Error("nobody was killed, or nothing was done")
	}
}
