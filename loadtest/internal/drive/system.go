package drive

import (
	"context"
	"io"
	"time"

	"github.com/headgate/headgate/loadtest/internal/figures"
	"github.com/headgate/headgate/loadtest/internal/load"
	"github.com/headgate/headgate/loadtest/internal/record"
)

// Handler runs a job by its number in the plan. admitted is when Redis admitted it, zero where nobody says.
type Handler func(ctx context.Context, number int, admitted time.Time) error

// System is a job queue under test, for one run of one plan.
type System interface {
	// Name is what tables call it.
	Name() string
	// Enqueue asks for a job of the plan to enter. Several goroutines call it.
	Enqueue(ctx context.Context, number int) record.Answer
	// Work runs jobs until ctx ends and they are done. ready is called once it does.
	Work(ctx context.Context, ready func(), handle Handler) error
	// Breakers returns the state of each downstream's breaker by its name.
	Breakers() map[string]string
	// Account counts what is left.
	Account(ctx context.Context) (figures.Account, error)
	// Redis is the store that it runs on.
	Redis() Redis
	// Close removes what the run left in Redis and ends a private one.
	Close(ctx context.Context) error
}

// Redis is the store of a system. Its methods may be called from several goroutines.
type Redis interface {
	// String names it without credentials.
	String() string
	// Kill kills a server that may be restarted.
	Kill()
	// Restart starts it again, unless it runs.
	Restart(ctx context.Context) error
}

// Open opens a system under test.
type Open func(ctx context.Context, config SystemConfig) (System, error)

// SystemConfig says how to open a system.
type SystemConfig struct {
	// Plan is what will be run.
	Plan *load.Plan
	// Book is told which jobs ran out of attempts.
	Book func() *record.Book
	// Redis is the address of a Redis; empty means a private one.
	Redis string
	// AsynqPoll is how often an idle asynq looks for tasks; zero means its default, once a second.
	AsynqPoll time.Duration
	// Notes takes what the user must know about the store.
	Notes io.Writer
}
