package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/loadtest/internal/drive"
	"github.com/headgate/headgate/loadtest/internal/load"
)

// Defaults and bounds of flags that are not of a load.Spec.
const (
	defaultRounds   = 3
	maxRounds       = 99
	defaultP99      = 20 * time.Millisecond
	maxP99          = time.Minute
	findDuration    = 3 * time.Second
	maxAsynqPoll    = time.Minute
	allScenarios    = "all"
	defaultScenario = "steady"
	traceScenario   = "trace"
	asynqName       = "asynq"
	unshedName      = "unshed"
	cappedName      = "capped"
	gradientName    = "gradient"
	failsafeName    = "failsafe"
	overloadName    = "overload"
)

// overloadSystems are what can be compared of the scenario overload, beside asynq.
var overloadSystems = []string{unshedName, cappedName, gradientName, failsafeName}

// flags are the command line.
type flags struct {
	spec      load.Spec
	scenario  string
	trace     string
	redis     string
	compare   string
	rounds    int
	asynqPoll time.Duration
	findLimit bool
	p99       time.Duration
	json      bool
	row       bool
	report    string
	http      bool
	serve     string
	binary    string

	// given are the flags that were on the command line.
	given map[string]bool
	// scenarios is scenario, taken apart.
	scenarios []string
	// compared are the systems of compare.
	compared []string
	// systems are those that can be measured, by their names.
	systems map[string]drive.Open
	// noted says that the user was told which store is used.
	noted bool
}

const about = `Sends jobs through Headgate and its worker at a fixed rate, whatever becomes of them, and says how
long they took, who was served, and whether every promise held.

  go run loadtest/main.go                                     a steady load for ten seconds
  go run loadtest/main.go -scenario noisy-neighbour -compare asynq -report out
  go run loadtest/main.go -scenario all -rate 500 -duration 5s
  go run loadtest/main.go -trace requests.csv -duration 20s
  go run loadtest/main.go -scenario overload -overload 10 -shape ramp -compare unshed
  go run -C loadtest/peers ./overload -scenario overload -compare asynq,failsafe,gradient
  go run loadtest/main.go -find-limit -p99 20ms
  go run loadtest/main.go -http -duration 10s                 decisions over HTTP, 5,000 a second

Without -redis it starts a private redis-server, or a store inside the process where there is none.
Exit codes: 0 every promise held; 1 one was broken, or the run failed or was interrupted; 2 bad flags.

Flags, with one dash or two:
`

// parse reads the command line. The error is flag.ErrHelp where help was asked for, and was printed.
func parse(args []string, failsafe bool, stdout io.Writer) (*flags, error) {
	f := &flags{spec: load.DefaultSpec(), given: map[string]bool{}}
	set := flag.NewFlagSet("loadtest", flag.ContinueOnError)
	set.SetOutput(io.Discard) // Run prints the error, once and without all flags.
	f.add(set)
	err := set.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, about)
		set.SetOutput(stdout)
		set.PrintDefaults()
		return nil, err
	case err != nil:
		return nil, explain(set, err)
	}
	set.Visit(func(one *flag.Flag) { f.given[one.Name] = true })
	if set.NArg() > 0 {
		return nil, &admission.FieldError{Field: "argument", Value: strconv.Quote(set.Arg(0)), Allowed: "nothing but flags"}
	}
	f.complete()
	return f, f.validate(failsafe)
}

// explain adds what is allowed to the error of a value that cannot be read.
func explain(set *flag.FlagSet, err error) error {
	_, rest, _ := strings.Cut(err.Error(), "for flag -")
	name, _, _ := strings.Cut(rest, ":")
	if one := set.Lookup(name); one != nil {
		_, usage := flag.UnquoteUsage(one)
		return fmt.Errorf("%w: it is %s", err, usage)
	}
	return err
}

func (f *flags) add(set *flag.FlagSet) {
	s := &f.spec
	set.Float64Var(&s.Rate, "rate", s.Rate, "jobs a `second`, 0.1 to 1e6; of a trace, rows a second")
	set.DurationVar(&s.Duration, "duration", s.Duration, "how long jobs arrive, 100ms to 24h; with -find-limit each step, 3s by default")
	set.IntVar(&s.Tenants, "tenants", s.Tenants, "number of tenants, 1 to 100000")
	set.IntVar(&s.Queues, "queues", s.Queues, "number of queues, 1 to 63")
	set.IntVar(&s.Priorities, "priorities", s.Priorities, "number of priority classes, 1 to 100; 3 are high, medium and low")
	set.IntVar(&s.Slots, "slots", s.Slots, "jobs in the worker's hands at a time, 1 to 10000")
	set.DurationVar(&s.Work, "work", s.Work, "how long a handler works, up to 1h; negative is what the scenario says")
	set.Float64Var(&s.Overload, "overload", s.Overload, "how many `times` what can be served arrives in the middle of the scenario overload, 1 to 100")
	set.Float64Var(&s.ClassRatio, "class-ratio", s.ClassRatio, "how many `times` as many jobs each class has as the one above it in the scenario overload, 1 to 100")
	set.IntVar(&s.Kept, "kept", s.Kept, "how many `percent` of the slots the scenario overload keeps for the first class and lends to no other, 0 to 90; 0 keeps most and lends them")
	set.StringVar(&s.Shape, "shape", s.Shape, "`how` the load of the scenario overload goes: "+load.AboutShapes())
	set.IntVar(&s.Payload, "payload", s.Payload, "payload in `bytes`, 0 to 1048576")
	set.Int64Var(&s.TenantLimit, "tenant-limit", 0, "`tokens` a second of each tenant; 0 is what the scenario says")
	set.Int64Var(&s.GlobalLimit, "global-limit", 0, "`tokens` a second of all; 0 is what the scenario says")
	set.Uint64Var(&s.Seed, "seed", s.Seed, "draws the times and the names of arrivals")
	set.StringVar(&f.scenario, "scenario", defaultScenario, "all, or some `names` with commas between: "+strings.Join(load.Scenarios(), ", "))
	set.StringVar(&f.trace, "trace", "", "CSV `file` to replay, as headgate replay reads it; makes the scenario trace")
	set.StringVar(&f.redis, "redis", "", "`address` of a Redis; by default a private one, which redis-restart has in any case")
	set.StringVar(&f.compare, "compare", "", "`systems` with commas between to send the same load through, in alternating rounds: asynq, or, of the scenario overload, unshed: without what the policy has against it; "+
		"capped: with a limit of what can be served in its place; gradient: asynq with Netflix's gradient limit in its worker; failsafe: asynq with failsafe-go's adaptive limiter there")
	set.IntVar(&f.rounds, "rounds", defaultRounds, "rounds of each system with -compare, 1 to 99; medians are printed")
	set.DurationVar(&f.asynqPoll, "asynq-poll", 0, "how often an idle asynq looks for tasks, up to 1m; 0 is its default, 1s")
	set.BoolVar(&f.findLimit, "find-limit", false, "find the highest rate with a 99th percentile of Enqueue to handler below -p99")
	set.DurationVar(&f.p99, "p99", defaultP99, "the bound of -find-limit, 100us to 1m; of a trace, for light tenants")
	set.BoolVar(&f.http, "http", false, "call headgate serve: checks at -rate, 5000 by default, beside reads and updates of limits")
	set.StringVar(&f.serve, "serve", "", "`URL` of the server of -http, whose key is in "+keyVariable+"; by default one is started")
	set.StringVar(&f.binary, "headgate", "", "`file` of the binary that -http starts; by default it is built from the sources")
	set.BoolVar(&f.json, "json", false, "print JSON and no progress")
	set.BoolVar(&f.row, "row", false, "print one row of a table of the scenario overload, the medians of each system, and no progress")
	set.StringVar(&f.report, "report", "", "`directory` to write a page with plots into")
}

// complete fills in what follows from other flags.
func (f *flags) complete() {
	if f.trace != "" && !f.given["scenario"] {
		f.scenario = traceScenario
	}
	f.scenarios = strings.Split(f.scenario, ",")
	if f.compare != "" {
		f.compared = strings.Split(f.compare, ",")
	}
	if f.scenario == allScenarios {
		f.scenarios = slices.DeleteFunc(load.Scenarios(), func(name string) bool { return name == traceScenario && f.trace == "" })
	}
	if f.findLimit && !f.given["duration"] {
		f.spec.Duration = findDuration
	}
}

// validate reports every bad flag at once.
func (f *flags) validate(failsafe bool) error {
	bad := []error{f.spec.Validate()}
	check := func(ok bool, name string, value any, allowed string) {
		if !ok {
			bad = append(bad, &admission.FieldError{Field: "-" + name, Value: fmt.Sprint(value), Allowed: allowed})
		}
	}
	for _, name := range f.scenarios {
		bad = append(bad, load.CheckScenario(name))
	}
	check(!slices.Contains(f.scenarios, traceScenario) || f.trace != "", "trace", `""`, "the CSV file that the scenario trace replays")
	check(f.trace == "" || slices.Contains(f.scenarios, traceScenario), "trace", strconv.Quote(f.trace), "nothing but with the scenario trace")
	for i, name := range f.compared {
		check((name == asynqName || slices.Contains(overloadSystems, name)) && !slices.Contains(f.compared[:i], name), "compare", strconv.Quote(name), "asynq, unshed, capped, gradient or failsafe, each once")
		check(name == asynqName || slices.Equal(f.scenarios, []string{overloadName}), "compare", strconv.Quote(name), "nothing but with the scenario overload")
		check(name != failsafeName || failsafe, "compare", strconv.Quote(name), "nothing but in go run -C loadtest/peers ./overload, which links it")
	}
	check(!f.row || slices.Equal(f.scenarios, []string{overloadName}) && !f.json && f.report == "", "row", f.row, "with the scenario overload alone, and without -json and -report")
	check(!f.given["overload"] || slices.Contains(f.scenarios, overloadName), "overload", f.spec.Overload, "nothing but with the scenario overload")
	check(!f.given["shape"] || slices.Contains(f.scenarios, overloadName), "shape", strconv.Quote(f.spec.Shape), "nothing but with the scenario overload")
	check(f.compare == "" || f.redis == "", "redis", "an address", "none with -compare, which gives each system a private one")
	check(f.rounds >= 1 && f.rounds <= maxRounds, "rounds", f.rounds, "1 to 99")
	check(f.asynqPoll >= 0 && f.asynqPoll <= maxAsynqPoll, "asynq-poll", f.asynqPoll, "0s to 1m")
	check(f.p99 >= 100*time.Microsecond && f.p99 <= maxP99, "p99", f.p99, "100us to 1m")
	check(f.http || f.serve == "", "serve", strconv.Quote(f.serve), "nothing but with -http")
	check(f.http || f.binary == "", "headgate", strconv.Quote(f.binary), "nothing but with -http")
	if f.http {
		check(!f.given["scenario"] && f.trace == "" && f.compare == "" && f.report == "" && !f.findLimit, "http", true, "without -scenario, -trace, -compare, -find-limit and -report")
		check(f.serve == "" || f.redis == "" && f.binary == "", "serve", strconv.Quote(f.serve), "without -redis and -headgate: it runs already")
	}
	if f.findLimit {
		check(len(f.scenarios) == 1, "scenario", strconv.Quote(f.scenario), "one scenario with -find-limit")
		check(f.compare == "", "compare", strconv.Quote(f.compare), "nothing with -find-limit")
		check(f.report == "", "report", strconv.Quote(f.report), "nothing with -find-limit")
	}
	return errors.Join(bad...)
}
