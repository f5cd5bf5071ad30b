package policies

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// recordWriters is how many records are written at a time, and recordNews after how many it is told how many there were.
const (
	recordWriters = 16
	recordNews    = 100_000
)

func newRecordExport(o *cli.Operator) *cobra.Command {
	var prefix string
	c := &cobra.Command{
		Use: "export", Short: "Write all records as lines of JSON", Args: cli.NoArgs,
		Long: `Writes a line of JSON for each record, in no order, which headgate record import reads. A record that is
changed meanwhile is written as it was or as it is, or twice.`,
		Example: `  headgate record export --redis localhost:6379 > records.jsonl`,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				out := bufio.NewWriter(c.OutOrStdout())
				encoder := json.NewEncoder(out)
				n := 0
				err := eachRecord(ctx, s, store.RecordsQuery{Prefix: prefix}, func(page []store.TenantRecord) error {
					for _, r := range page {
						if err := encoder.Encode(recordLine{r.Tenant, r.Text}); err != nil {
							return fmt.Errorf("write records: %w", err)
						}
						if n++; n%recordNews == 0 {
							cli.None(c, fmt.Sprintf("%d records written", n))
						}
					}
					return nil
				})
				return errors.Join(err, out.Flush())
			})
		},
	}
	c.Flags().StringVar(&prefix, "name-prefix", "", "those of tenants whose names begin with `TEXT`")
	return c
}

// eachRecord calls do for each page of records.
func eachRecord(ctx context.Context, s store.Deployment, q store.RecordsQuery, do func([]store.TenantRecord) error) error {
	for {
		page, err := s.RecordsPage(ctx, q)
		if err != nil {
			return err
		}
		if err := do(page.Records); err != nil {
			return err
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
}

// importView tells what an import did, or would do.
type importView struct {
	Records int64 `json:"records"`
	DryRun  bool  `json:"dry_run,omitempty"`
}

func newRecordImport(o *cli.Operator) *cobra.Command {
	var reason string
	var dry bool
	c := &cobra.Command{
		Use: "import FILE|-", Short: "Store records from lines of JSON", Args: cli.OneArg("FILE, or - for standard input"),
		Long: `Reads a line of JSON for each record, as headgate record export writes them, and stores it in the place of
what its tenant has. Tenants that are not there keep theirs. It ends at the first line that is none, of
which it tells the number; what was stored until then stays, and to import the same again changes nothing.
The audit has one entry of it.`,
		Example: `  headgate record import records.jsonl --reason "from billing" --redis localhost:6379
  headgate record import - --dry-run --redis localhost:6379 < records.jsonl`,
		RunE: func(c *cobra.Command, args []string) error {
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				from := c.InOrStdin()
				if args[0] != "-" {
					file, err := os.Open(args[0])
					if err != nil {
						return fmt.Errorf("read records: %w", err)
					}
					defer file.Close()
					from = file
				}
				n, err := importRecords(ctx, c, s, from, reason, dry)
				if err != nil {
					return err
				}
				did := "stored"
				if dry {
					did = "read, and none was stored"
				}
				return o.Print(c, importView{n, dry}, func(to io.Writer) { fmt.Fprintf(to, "%d records %s\n", n, did) })
			})
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "check all lines, and store none")
	cli.ReasonFlag(c, &reason)
	return c
}

// importer stores records, several at a time, all as one act.
type importer struct {
	store store.Deployment
	by    store.Intervention

	mu struct {
		sync.Mutex
		rules rollout.Rules
	}
}

func newImporter(ctx context.Context, s store.Deployment, reason string) (*importer, error) {
	m := &importer{store: s, by: store.Intervention{Author: cli.Author(), Reason: reason, Act: rand.Text()}}
	var err error
	if m.mu.rules, err = rollout.ReadRules(ctx, s); err == nil && !m.mu.rules.Compiled.HasRecords() {
		err = policy.ErrNoRecords
	}
	return m, err
}

func (m *importer) rules() rollout.Rules {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.rules
}

// renew reads the policy anew for whoever has found rules to be stale.
func (m *importer) renew(ctx context.Context, stale rollout.Rules) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.rules.Compiled != stale.Compiled {
		return nil
	}
	var err error
	m.mu.rules, err = rollout.ReadRules(ctx, m.store)
	return err
}

// put stores a record in the place of any.
func (m *importer) put(ctx context.Context, tenant string, r policy.OwnLimits) error {
	for {
		rules := m.rules()
		e, err := rollout.NewRecordEdit(rules, tenant, r)
		if err != nil {
			return err
		}
		e.By = m.by
		if _, err = m.store.PutRecord(ctx, e); !errors.Is(err, store.ErrStale) {
			return err
		}
		if err := m.renew(ctx, rules); err != nil {
			return err
		}
	}
}

func importRecords(ctx context.Context, c *cobra.Command, s store.Deployment, from io.Reader, reason string, dry bool) (int64, error) {
	m, err := newImporter(ctx, s, reason)
	if err != nil {
		return 0, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(recordWriters)
	var n atomic.Int64
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 2*policy.MaxRecordBytes)
	for number := 1; lines.Scan() && ctx.Err() == nil; number++ {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		tenant, r, err := readRecordLine(text)
		if err == nil {
			err = m.rules().Compiled.CheckRecord(r)
		}
		if err != nil {
			return n.Load(), cli.Usage(errors.Join(fmt.Errorf("line %d: %s", number, err.Error()), group.Wait())) // The line goes before all faults.
		}
		group.Go(func() error {
			if !dry {
				if err := m.put(ctx, tenant, r); err != nil {
					return fmt.Errorf("tenant %s: %w", tenant, err)
				}
			}
			if n.Add(1)%recordNews == 0 {
				cli.None(c, fmt.Sprintf("%d records", n.Load()))
			}
			return nil
		})
	}
	err = group.Wait()
	if bad := lines.Err(); bad != nil {
		err = errors.Join(err, fmt.Errorf("read records: %w", bad))
	}
	return n.Load(), err
}

// readRecordLine reads a line of a file of records.
func readRecordLine(text []byte) (tenant string, r policy.OwnLimits, err error) {
	var line recordLine
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&line); err != nil {
		return "", r, fmt.Errorf(`%w, want {"tenant": NAME, "record": {...}}: %w`, admission.ErrInvalid, err)
	}
	if err := admission.ValidateTenant(line.Tenant); err != nil {
		return "", r, err
	}
	r, err = policy.UnmarshalRecord(line.Record)
	return line.Tenant, r, err
}

// deleteRecords takes all records away.
func deleteRecords(ctx context.Context, o *cli.Operator, c *cobra.Command, s store.Deployment, reason string) error {
	m, err := newImporter(ctx, s, reason)
	if err != nil {
		return err
	}
	var gone atomic.Int64
	err = eachRecord(ctx, s, store.RecordsQuery{}, func(page []store.TenantRecord) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(recordWriters)
		for _, r := range page {
			group.Go(func() error {
				if gone.Add(1)%recordNews == 0 {
					cli.None(c, fmt.Sprintf("%d records deleted", gone.Load()))
				}
				return m.put(ctx, r.Tenant, policy.OwnLimits{})
			})
		}
		return group.Wait()
	})
	if err != nil {
		return err
	}
	return o.Print(c, goneView{gone.Load()}, func(to io.Writer) { fmt.Fprintf(to, "%d records deleted\n", gone.Load()) })
}
