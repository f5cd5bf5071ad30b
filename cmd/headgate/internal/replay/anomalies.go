package replay

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/anomaly"
	"github.com/headgate/headgate/internal/trace"
)

// shownAlarms is how many alarms of a trial are shown.
const shownAlarms = 20

// trial is what would have been told of a trace.
type trial struct {
	Rows int `json:"rows"`
	Bad  int `json:"bad_rows"`
	// Tenants is how many there are, Most how many of them were watched at a time, and Minutes how many there were.
	Tenants int     `json:"tenants"`
	Most    int     `json:"names_watched"`
	Minutes int64   `json:"minutes"`
	Speed   float64 `json:"speed"`
	// Alarms are those that began, by kind.
	Alarms map[anomaly.Kind]int `json:"alarms"`
	// First are the first of them.
	First []tried `json:"first"`
}

// tried is one alarm.
type tried struct {
	Minute    time.Time       `json:"minute"`
	Kind      anomaly.Kind    `json:"kind"`
	Of        anomaly.Subject `json:"of"`
	Name      string          `json:"name,omitempty"`
	Rate      float64         `json:"rate"`
	Usual     float64         `json:"usual"`
	Deviation float64         `json:"deviation"`
	Score     float64         `json:"score"`
}

// tryFlags are those of the command.
type tryFlags struct {
	columns trace.Columns
	speed   float64
	json    bool
}

// NewAnomalies returns the command headgate anomaly try.
func NewAnomalies() *cobra.Command {
	var f tryFlags
	c := &cobra.Command{
		Use: "try TRACE.csv", Short: "Tell what would have been told of a trace", Args: cli.OneArg("TRACE.csv"),
		Long: `Reads a trace, a CSV file with one request a row as headgate replay takes it, and tells of which rates
headgate would have told: of all, and of each tenant. It needs no Redis. A file of - is the standard
input. Nothing was refused in a trace, so of refusals nothing is told. With --speed the trace is as if
it had come so many times as fast: most traces that people hand out are of a small part of a day's
requests, and what has 10 a minute or less is told of by no rule.`,
		Example: `  headgate anomaly try requests.csv
  headgate anomaly try mine.csv --column-arrival time --column-tenant customer --column-run-time took
  headgate anomaly try requests.csv --speed 60 --json`,
		RunE: func(c *cobra.Command, args []string) error {
			if !(f.speed >= 1 && f.speed <= 1e6) {
				return cli.FieldError("speed", strconv.FormatFloat(f.speed, 'g', -1, 64), "1 to 1e6")
			}
			return f.run(c, args[0])
		},
	}
	flags := c.Flags()
	flags.Float64Var(&f.speed, "speed", 1, "`FACTOR` by which it is faster than the trace, 1 to 1e6")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	for _, column := range f.columns.All() {
		flags.StringVar(column.Value, "column-"+column.Name, column.Default, "`COLUMN` of: "+column.Meaning)
	}
	return c
}

func (f *tryFlags) run(c *cobra.Command, name string) error {
	from := c.InOrStdin()
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("read the trace: %w", err)
		}
		defer func() { _ = file.Close() }()
		from = file
	}
	read, err := trace.Read(from, f.columns, 0)
	if err != nil {
		return fmt.Errorf("read the trace %s: %w", name, err)
	}
	if len(read.Rows) == 0 {
		return fmt.Errorf("the trace %s has no good row", name)
	}
	told := try(read, f.speed)
	return cli.Print(c, f.json, told, func(to io.Writer) { writeTrial(to, &told) })
}

// try gives a detector the minutes of a trace.
func try(read *trace.Trace, speed float64) trial {
	t := trial{Rows: len(read.Rows), Bad: len(read.Bad), Speed: speed, Alarms: map[anomaly.Kind]int{anomaly.Surge: 0, anomaly.Silence: 0}, First: []tried{}}
	start, tenants := read.Rows[0].Arrival, map[string]bool{}
	minuteOf := func(at time.Time) int64 {
		return int64(float64(at.Sub(start))/speed/float64(time.Minute)) + start.Unix()/60
	}
	last := minuteOf(read.Rows[len(read.Rows)-1].Arrival)
	var d anomaly.Detector
	type key struct {
		kind anomaly.Kind
		name anomaly.Name
	}
	on := map[key]bool{}
	for at, next := start.Unix()/60, 0; at <= last; at++ {
		m := anomaly.Minute{At: at, Counts: map[anomaly.Name]anomaly.Decided{}}
		for ; next < len(read.Rows) && minuteOf(read.Rows[next].Arrival) <= at; next++ {
			tenant := read.Rows[next].Tenant
			tenants[tenant] = true
			for _, name := range []anomaly.Name{{Of: anomaly.Deployment}, {Of: anomaly.Tenant, Name: tenant}} {
				m.Counts[name] = anomaly.Decided{Admitted: m.Counts[name].Admitted + 1}
			}
		}
		now := map[key]bool{}
		for _, a := range d.Observe(m) {
			k := key{a.Kind, a.Name}
			if now[k] = true; on[k] {
				continue
			}
			t.Alarms[a.Kind]++
			if len(t.First) < shownAlarms {
				t.First = append(t.First, tried{time.Unix(at*60, 0).UTC(), a.Kind, a.Of, a.Name.Name, a.Rate, a.Usual, a.Deviation, a.Score})
			}
		}
		on, t.Most, t.Minutes = now, max(t.Most, d.Watched()), t.Minutes+1
	}
	t.Tenants = len(tenants)
	return t
}

func writeTrial(to io.Writer, t *trial) {
	fmt.Fprintf(to, "%d rows of %d tenants in %d minutes", t.Rows, t.Tenants, t.Minutes)
	if t.Speed != 1 {
		fmt.Fprintf(to, ", as if it had been %g times as fast", t.Speed)
	}
	fmt.Fprintf(to, "; at most %d names were watched at a time\n", t.Most)
	fmt.Fprintf(to, "alarms: %d of a surge, %d of a silence\n", t.Alarms[anomaly.Surge], t.Alarms[anomaly.Silence])
	if len(t.First) == 0 {
		return
	}
	rows := report.NewTable(to, 4, "minute", "what", "of", "name", "rate", "usual", "score")
	for _, a := range t.First {
		rows.AppendRow(table.Row{
			cli.At(&a.Minute), string(a.Kind), string(a.Of), report.Tame(a.Name, cli.ShownText), strconv.FormatFloat(a.Rate, 'f', -1, 64), strconv.FormatFloat(a.Usual, 'f', -1, 64),
			strconv.FormatFloat(a.Score, 'f', 1, 64),
		})
	}
	rows.Render()
}
