package replay

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/cmd/headgate/internal/trueup"
	"github.com/headgate/headgate/internal/trace"
)

// costReport is what the command tells.
type costReport struct {
	Calls int `json:"calls"`
	Bad   int `json:"bad_rows"`
	// Tokens is what all calls have cost, Seconds the time from the first to the last.
	Tokens  admission.Tokens `json:"tokens"`
	Seconds float64          `json:"seconds"`
	// PerMinute and Burst are the limit's.
	PerMinute admission.Tokens `json:"tokens_per_minute"`
	Burst     admission.Tokens `json:"burst"`
	Arms      []trueup.Arm     `json:"arms"`
}

// usualShare is the part of what the trace has used in the mean minute that the limit lets through unless told otherwise.
const usualShare = 0.5

type costFlags struct {
	columns   trace.CostColumns
	perMinute int64
	burst     int64
	maxOutput int64
	tokenTime time.Duration
	limit     int
	json      bool
}

const costsHelp = `Reads a CSV file of calls whose cost was known only when they ended, as those of a model are, and
replays them in front of one limit: by three estimates, each once with what was reserved as the cost
and once trued up as the call ends (reserve and commit). It says what was reserved, what was used, and
by how much that was more than the limit lets through. It needs no Redis. A file of - is the standard
input.

  context         reserves what is known before: the prompt, one token at least
  context + most  that and --max-output
  learned         what nine in ten of the last 32 calls of the tenant and type were not above; at
                  first 1000 tokens, and never above the burst

Columns are by default those of the Azure LLM inference traces, which have no tenants. A call ends
after --token-time for each token that it generated; one that takes more than a minute tells too late.

of limit is what was used by what the limit lets through in the time of the trace, burst + rate x time.
Excess is how much more than that was used in the worst stretch of time, in tokens and in bursts. With
true-up it is one debt of a burst, and what was under way when the debt was made.`

// newCosts returns the command headgate replay costs.
func newCosts() *cobra.Command {
	var f costFlags
	c := &cobra.Command{
		Use: "costs TRACE.csv", Short: "Tell what a limit on estimated costs lets through", Long: costsHelp, Args: cli.OneArg("the trace's file"),
		Example: `  headgate replay costs AzureLLMInferenceTrace_conv.csv
  headgate replay costs mine.csv --column-generated output --column-context input --column-tenant customer
  headgate replay costs calls.csv --tokens-per-minute 40000 --burst 8000 --json`,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args[0]) },
	}
	flags := c.Flags()
	flags.Int64Var(&f.perMinute, "tokens-per-minute", 0, "`TOKENS` that the limit lets through in a minute, 1 to 1e9; by default half of what the trace has used")
	flags.Int64Var(&f.burst, "burst", 0, "`TOKENS` that it lets through at once, 1 to 1e9; by default those of a minute")
	flags.Int64Var(&f.maxOutput, "max-output", 1000, "`TOKENS` that a call is thought to generate at most, 1 to 1000000")
	flags.DurationVar(&f.tokenTime, "token-time", 20*time.Millisecond, "`TIME` that a call takes for each token that it generates, 0s to 1h")
	flags.IntVar(&f.limit, "limit-rows", 0, "take the first `N` rows only; 0 takes all")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	for _, column := range f.columns.All() {
		meaning := "`COLUMN` of: " + column.Meaning
		if column.Otherwise != nil {
			meaning += fmt.Sprintf(" (a file without it has %q in each row)", *column.Otherwise)
		}
		flags.StringVar(column.Value, "column-"+column.Name, column.Default, meaning)
	}
	return c
}

// validate reports every bad flag at once.
func (f *costFlags) validate() error {
	var bad []error
	field := func(ok bool, flag, value, allowed string) {
		if !ok {
			bad = append(bad, cli.FieldError(flag, value, allowed))
		}
	}
	const most = 1_000_000_000
	field(f.perMinute >= 0 && f.perMinute <= most, "tokens-per-minute", strconv.FormatInt(f.perMinute, 10), "1 to 1000000000 tokens")
	field(f.burst >= 0 && f.burst <= most, "burst", strconv.FormatInt(f.burst, 10), "1 to 1000000000 tokens")
	field(f.maxOutput >= 1 && f.maxOutput <= int64(admission.MaxCost), "max-output", strconv.FormatInt(f.maxOutput, 10), "1 to 1000000 tokens")
	field(f.tokenTime >= 0 && f.tokenTime <= time.Hour, "token-time", f.tokenTime.String(), "0s to 1h")
	field(f.limit >= 0, "limit-rows", strconv.Itoa(f.limit), "0, for all, or more")
	return errors.Join(bad...)
}

func (f *costFlags) run(c *cobra.Command, name string) error {
	if err := f.validate(); err != nil {
		return err
	}
	calls, bad, err := f.read(name, c.InOrStdin())
	if err != nil {
		return err
	}
	for _, one := range bad[:min(len(bad), cli.ShownBadRows)] {
		fmt.Fprintf(c.ErrOrStderr(), "headgate: %s:%d: bad row: %v\n", name, one.Line, one.Err)
	}
	if more := len(bad) - cli.ShownBadRows; more > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "headgate: %s: %d more bad rows\n", name, more)
	}
	r := costReport{Calls: len(calls), Bad: len(bad), Seconds: calls[len(calls)-1].Arrival.Sub(calls[0].Arrival).Seconds()}
	for i := range calls {
		r.Tokens += calls[i].Cost()
	}
	s := trueup.Settings{Limit: f.limitOf(&r), MaxOutput: admission.Tokens(f.maxOutput), TokenTime: f.tokenTime}
	for _, by := range trueup.Ways() {
		for _, trueUp := range []bool{false, true} {
			r.Arms = append(r.Arms, s.Run(calls, by, trueUp))
		}
	}
	return cli.Print(c, f.json, r, func(to io.Writer) { writeCosts(to, &r) })
}

func (f *costFlags) read(name string, stdin io.Reader) (calls []trace.Call, bad []trace.BadRow, err error) {
	from := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, nil, fmt.Errorf("read the trace: %w", err)
		}
		defer func() { _ = file.Close() }()
		from = file
	}
	calls, bad, err = trace.ReadCosts(from, f.columns, f.limit)
	if err == nil && len(calls) == 0 {
		err = errors.New("it has no good row")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the trace %s: %w", name, err)
	}
	return calls, bad, nil
}

// limitOf returns the limit, and notes it.
func (f *costFlags) limitOf(r *costReport) admission.Limit {
	const most = 1e9
	r.PerMinute, r.Burst = admission.Tokens(f.perMinute), admission.Tokens(f.burst)
	if r.PerMinute == 0 {
		r.PerMinute = admission.Tokens(min(most, max(1, math.Ceil(usualShare*60*float64(r.Tokens)/max(r.Seconds, 60)))))
	}
	if r.Burst == 0 {
		r.Burst = r.PerMinute
	}
	return admission.Limit{Tokens: r.PerMinute, Per: time.Minute, Burst: r.Burst}
}

func writeCosts(to io.Writer, r *costReport) {
	fmt.Fprintf(to, "%d calls cost %d tokens in %s; the limit is %d tokens a minute, %d at once\n",
		r.Calls, r.Tokens, time.Duration(r.Seconds*float64(time.Second)).Round(time.Second), r.PerMinute, r.Burst)
	rows := report.NewTable(to, 2, "estimate", "true-up", "admitted", "refused", "too costly", "short", "late", "reserved", "used", "of limit", "excess", "in bursts")
	for i := range r.Arms {
		a := &r.Arms[i]
		trueUp := "no"
		if a.TrueUp {
			trueUp = "yes"
		}
		rows.AppendRow(table.Row{
			a.Estimate, trueUp, a.Admitted, a.Refused, a.TooCostly, a.Short, a.Late, int64(a.Reserved), int64(a.Used),
			strconv.FormatFloat(100*a.OfLimit, 'f', 1, 64) + " %", strconv.FormatFloat(a.Excess, 'f', 0, 64), strconv.FormatFloat(a.Debts, 'f', 2, 64),
		})
	}
	rows.Render()
}
