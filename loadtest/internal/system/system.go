package system

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/loadtest/internal/load"
	"github.com/headgate/headgate/loadtest/internal/record"
	"github.com/headgate/headgate/store"
)

// Handler runs a job by its number in the plan. admitted is when Redis admitted it, zero where nobody says.
type Handler func(ctx context.Context, number int, admitted time.Time) error

// Account is what a system holds when a run is over.
type Account struct {
	// Held counts the jobs that are in and have neither completed nor died.
	Held int
	// Census is Headgate's own count, nil of others.
	Census *store.Census
	// Gated says that something which is meant to hold jobs back does.
	Gated bool
}

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
	Account(ctx context.Context) (Account, error)
	// Redis is the store that it runs on.
	Redis() *Store
	// Close removes what the run left in Redis and ends a private one.
	Close(ctx context.Context) error
}

// Config says how to open a system.
type Config struct {
	// Plan is what will be run.
	Plan *load.Plan
	// Book is told which jobs ran out of attempts.
	Book func() *record.Book
	// Redis is the address of a Redis; empty means a private one.
	Redis string
	// AsynqPoll is how often an idle asynq looks for tasks; zero means its default, once a second.
	AsynqPoll time.Duration
	// Notes takes what the user must know about the store.
	Notes Notes
}

// idMark begins the ids of jobs; the number follows.
const idMark = "j"

func idOf(number int) string { return idMark + strconv.Itoa(number) }

// errStranger means that a job is not of this run; every run has keys of its own.
var errStranger = errors.New("the job is not of this run")

// numberOf returns the number of a job by its id.
func numberOf(id string, plan *load.Plan) (int, error) {
	number, err := strconv.Atoi(strings.TrimPrefix(id, idMark))
	if err != nil || number < 0 || number >= len(plan.Arrivals) {
		return 0, fmt.Errorf("%w: %q", errStranger, id)
	}
	return number, nil
}

// jobType is the type of every job.
const jobType = "load"

// Timeout bounds an enqueue; it is the default of Headgate's producer.
const Timeout = 2 * time.Second

// maxWork is how much longer than its work a handler may take before its ctx ends.
const maxWork = time.Minute
