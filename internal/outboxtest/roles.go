//go:build unix

package outboxtest

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// roleVariable tells a process of the test's binary what it is.
const roleVariable = "HEADGATE_OUTBOX_ROLE"

// The roles of a process that a test kills.
const (
	roleApplication = "application" // commits and rolls back orders with their jobs
	roleRelay       = "relay"
	roleHang        = "hang" // a relay that sends, says so and then hangs
)

// saidSent is what a relay says that hangs.
const saidSent = "sent"

// part is what such a process is told.
type part struct {
	Role, Driver, Source string
	Dialect              outbox.Dialect
	Redis, Prefix        string
	Window               time.Duration // zero means the default
}

// Main runs the tests, or the role that this process has.
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
	if p.Role == roleApplication {
		return p.apply(ctx)
	}
	db, err := sql.Open(p.Driver, p.Source)
	if err != nil {
		return err
	}
	s, err := p.open(ctx)
	if err != nil {
		return err
	}
	config := outbox.Config{Dialect: p.Dialect, Window: p.window, Poll: 10 * time.Millisecond}
	if p.Dialect == outbox.SQLite { // Its lease is five of them: a relay that is killed each second must be followed sooner than after ten.
		config.Timeout = 200 * time.Millisecond
	}
	made, err := producer.New(s, producer.Config{Timeout: config.Timeout})
	if err != nil {
		return err
	}
	var to outbox.Batcher = made
	if p.Role == roleHang {
		to, config.Timeout = hanging{to}, timeout
	}
	r, err := outbox.NewRelay(db, to, config)
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

func (p *part) window(ctx context.Context) (time.Duration, error) {
	if p.Window > 0 {
		return p.Window, nil
	}
	return window(ctx)
}

// pause is for what nobody tells of: a process that starts, a server that comes back.
func pause(d time.Duration) { <-time.After(d) }

// hanging never answers.
type hanging struct{ outbox.Batcher }

func (h hanging) EnqueueBatch(ctx context.Context, jobs []admission.Job) ([]admission.EnqueueResult, error) {
	for ctx.Err() == nil {
		if _, err := h.Batcher.EnqueueBatch(ctx, jobs); err == nil { // The machine may be slow.
			break
		}
	}
	fmt.Println(saidSent) //nolint:forbidigo // The test reads it.
	select {}
}

// open waits for a Redis that may be about to start.
func (p *part) open(ctx context.Context) (store.Deployment, error) {
	var err error
	for range 200 {
		var s store.Deployment
		if s, err = redisstore.Connect(ctx, "redis://"+p.Redis, redisstore.Config{Prefix: p.Prefix}); err == nil {
			return s, nil
		}
		pause(50 * time.Millisecond)
	}
	return nil, err
}

// apply inserts an order and its job in each transaction, and rolls every third back.
func (p *part) apply(ctx context.Context) error {
	for n := 0; ; n++ {
		db, err := sql.Open(p.Driver, p.Source)
		if err != nil {
			return err
		}
		for err == nil {
			n++
			err = p.order(ctx, db, n)
		}
		_ = db.Close()
		pause(20 * time.Millisecond)
	}
}

func (p *part) order(ctx context.Context, db *sql.DB, n int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // After Commit it does nothing.
	id := fmt.Sprintf("%d-%d", os.Getpid(), n)
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES ('"+id+"')"); err != nil {
		return err
	}
	j := Job(id)
	j.Tenant = fmt.Sprint("t", n%100) // Each has a limit of its own.
	if _, err := p.Dialect.Enqueue(ctx, tx, j); err != nil {
		return err
	}
	if n%3 == 0 {
		return tx.Rollback()
	}
	return tx.Commit()
}

// process is one that runs a part.
type process struct {
	command *exec.Cmd
	said    chan string // its first line
}

// start starts this binary as one of the roles.
func start(tb testing.TB, role string, d *Database, redis part) *process {
	tb.Helper()
	self, err := os.Executable()
	must(tb, err)
	redis.Role, redis.Driver, redis.Source, redis.Dialect = role, d.Driver, d.Source, d.Dialect
	text, err := json.Marshal(redis)
	must(tb, err)
	p := &process{command: exec.CommandContext(tb.Context(), self), said: make(chan string, 1)}
	p.command.Env = append(os.Environ(), roleVariable+"="+string(text))
	if role == roleHang { // What others say in a storm is what one would think.
		p.command.Stderr = os.Stderr
	}
	out, err := p.command.StdoutPipe()
	must(tb, err)
	must(tb, p.command.Start())
	go func() {
		s := bufio.NewScanner(out)
		s.Scan()
		p.said <- s.Text()
		for s.Scan() { // Its output must not block it.
		}
	}()
	return p
}

func (p *process) kill(tb testing.TB) {
	tb.Helper()
	must(tb, p.command.Process.Kill())
	_ = p.command.Wait() // It says that it was killed.
}

// address is where a process finds the deployment of a bench.
func (b *Bench) address(tb testing.TB) part {
	tb.Helper()
	return part{Redis: redistest.Shared(tb).Addr(), Prefix: b.prefix}
}
