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
	"strconv"
	"strings"
	"sync"

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

// importBatch is how many records are read and compared at a time.
const importBatch = 256

// importView tells what an import did, or would do.
type importView struct {
	// Records are those of the file. Each was stored, was the same already, or is of a tenant that is not in the part yet.
	Records int64 `json:"records"`
	Stored  int64 `json:"stored"`
	Same    int64 `json:"same"`
	Later   int64 `json:"later"`
	// Percent is the part, absent where the import was of all.
	Percent int  `json:"percent,omitempty"`
	DryRun  bool `json:"dry_run,omitempty"`
}

func (v importView) write(to io.Writer) {
	stored, were := "stored", "were"
	if v.DryRun {
		stored, were = "would be stored", "are"
	}
	switch {
	case v.Percent > 0:
		fmt.Fprintf(to, "%d %% of the tenants: %d records %s, %d %s already as in the file, %d are left for later\n", v.Percent, v.Stored, stored, v.Same, were, v.Later)
	case v.DryRun:
		fmt.Fprintf(to, "%d records read, and none was stored: %d would be, %d are already as in the file\n", v.Records, v.Stored, v.Same)
	default:
		fmt.Fprintf(to, "%d records stored, %d were already as in the file\n", v.Stored, v.Same)
	}
}

// importFlags are those of headgate record import.
type importFlags struct {
	part         policy.Rollout
	undo, reason string
	dry          bool
}

// check returns the part, and the reason as the audit has it.
func (f *importFlags) check(ofPart bool) (err error) {
	if f.part.Percent < 1 || f.part.Percent > policy.MaxPercent {
		err = cli.FieldError("percent", strconv.Itoa(f.part.Percent), fmt.Sprintf("1 to %d", policy.MaxPercent))
	}
	if bad := admission.ValidateName("id", f.part.ID, true); bad != nil {
		err = errors.Join(err, cli.Usage(bad))
	}
	if ofPart {
		f.reason = strings.TrimSpace(fmt.Sprintf("%s (%d %% of the tenants)", f.reason, f.part.Percent))
	}
	return errors.Join(err, cli.CheckReason(f.reason))
}

func newRecordImport(o *cli.Operator) *cobra.Command {
	var f importFlags
	c := &cobra.Command{
		Use: "import FILE|-", Short: "Store records from lines of JSON", Args: cli.OneArg("FILE, or - for standard input"),
		Long: `Reads a line of JSON for each record, as headgate record export writes them, and stores it in the place of
what its tenant has; the record {} takes away what it has. Tenants that are not there keep theirs. It ends
at the first line that is none, of which it tells the number; what was stored until then stays, and to
import the same again goes on. The audit has one entry of it.

With --percent it stores the records of a part of the tenants alone, chosen as headgate policy rollout
chooses them: the same again with a higher --percent adds tenants and goes on with the others. The audit
has the percent behind the reason. With --undo it writes to a file, before it stores a record, what the
tenant had, or {} if it had none; to import that file takes all back. A file that is there already is
added to, and of a tenant that stands in it nothing more is written: one file undoes all steps. One import
at a time writes to it; FILE.lock is there meanwhile. A record that was edited since becomes what it was
before the import, too.`,
		Example: `  headgate record import records.jsonl --reason "from billing" --redis localhost:6379
  headgate record import - --dry-run --redis localhost:6379 < records.jsonl
  headgate record import records.jsonl --percent 5 --undo before.jsonl --redis localhost:6379
  headgate record import records.jsonl --percent 25 --undo before.jsonl --redis localhost:6379
  headgate record import before.jsonl --reason "too much load" --redis localhost:6379`,
		RunE: func(c *cobra.Command, args []string) error {
			ofPart := c.Flags().Changed("percent")
			if err := f.check(ofPart); err != nil {
				return err
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				view, err := importFile(ctx, c, s, args[0], &f)
				if err != nil {
					return err
				}
				if ofPart {
					view.Percent = f.part.Percent
				}
				return o.Print(c, view, view.write)
			})
		},
	}
	flags := c.Flags()
	flags.IntVar(&f.part.Percent, "percent", policy.MaxPercent, fmt.Sprintf("store those of a part of the tenants, 1 to %d `PERCENT`", policy.MaxPercent))
	flags.StringVar(&f.part.ID, "id", "records", "`NAME` that decides who is in first: that of a roll-out of the policy has the same tenants in")
	flags.StringVar(&f.undo, "undo", "", "`FILE` to which what is replaced is written, for headgate record import")
	flags.BoolVar(&f.dry, "dry-run", false, "check all lines and tell what would be stored, and store none")
	cli.ReasonFlag(c, &f.reason)
	return c
}

// importFile imports the records of a file, or of standard input.
func importFile(ctx context.Context, c *cobra.Command, s store.Deployment, path string, f *importFlags) (v importView, err error) {
	from, source, err := openRecords(c, path)
	if err != nil {
		return v, err
	}
	defer from.Close()
	m, err := newImporter(ctx, s, f.reason)
	if err != nil {
		return v, err
	}
	m.part, m.dry = &f.part, f.dry
	if f.undo != "" && !f.dry {
		if m.undo, err = openUndo(f.undo, source); err != nil {
			return v, err
		}
		defer func() { err = errors.Join(err, m.undo.close()) }()
	}
	err = m.read(ctx, c, path, from)
	m.did.DryRun = f.dry
	return m.did, err
}

// openRecords opens a file, or standard input, of which nothing is known.
func openRecords(c *cobra.Command, path string) (from io.ReadCloser, about os.FileInfo, err error) {
	if path == "-" {
		return io.NopCloser(c.InOrStdin()), nil, nil
	}
	file, err := os.Open(path)
	if err == nil {
		about, err = file.Stat()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read records: %w", err)
	}
	return file, about, nil
}

// importer stores records, several at a time, all as one act.
type importer struct {
	store store.Deployment
	by    store.Intervention

	// These are of an import alone.
	part *policy.Rollout
	undo *undoFile // nil to keep nothing
	dry  bool
	did  importView
	// differs, if it is not nil, hears of each record that is not as in the file.
	differs func(was store.TenantRecord, want policy.OwnLimits) error

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

// toImport is a record that is to be stored.
type toImport struct {
	tenant string
	record policy.OwnLimits
}

// read stores what the lines of a file of that name say, a batch at a time; a tenant that comes again is of the next one.
func (m *importer) read(ctx context.Context, c *cobra.Command, name string, from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 2*policy.MaxRecordBytes)
	batch, in := make([]toImport, 0, importBatch), map[string]bool{}
	for number := 1; lines.Scan(); number++ {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		tenant, r, err := readRecordLine(text)
		if err == nil {
			err = m.rules().Compiled.CheckRecord(r)
		}
		if err != nil {
			err = cli.InFile("records", name, fmt.Errorf("line %d: %w", number, err))
			return errors.Join(err, m.write(ctx, batch)) // The line goes before all faults.
		}
		if m.did.Records++; m.did.Records%recordNews == 0 {
			cli.None(c, fmt.Sprintf("%d records", m.did.Records))
		}
		if !m.part.Has(tenant) {
			m.did.Later++
			continue
		}
		if in[tenant] || len(batch) == importBatch {
			if err := m.write(ctx, batch); err != nil {
				return err
			}
			batch = batch[:0]
			clear(in)
		}
		batch, in[tenant] = append(batch, toImport{tenant, r}), true
	}
	err := m.write(ctx, batch)
	if bad := lines.Err(); bad != nil {
		err = errors.Join(err, fmt.Errorf("read records: %w", bad))
	}
	return err
}

// write stores those of a batch that differ from what their tenants have, once that is kept.
func (m *importer) write(ctx context.Context, batch []toImport) error {
	if len(batch) == 0 {
		return nil
	}
	names := make([]string, len(batch))
	for i := range batch {
		names[i] = batch[i].tenant
	}
	stored, err := m.store.Records(ctx, names...)
	if err != nil {
		return err
	}
	var before []store.TenantRecord
	var differ []toImport
	for i, was := range stored {
		text, err := policy.MarshalRecord(batch[i].record)
		if err != nil {
			return err
		}
		if bytes.Equal(text, was.Text) {
			m.did.Same++
			continue
		}
		before, differ = append(before, was), append(differ, batch[i])
		if m.differs != nil {
			if err := m.differs(was, batch[i].record); err != nil {
				return err
			}
		}
	}
	m.did.Stored += int64(len(differ))
	if m.dry {
		return nil
	}
	if err := m.undo.keep(before); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(recordWriters)
	for _, one := range differ {
		group.Go(func() error {
			if err := m.put(ctx, one.tenant, one.record); err != nil {
				return fmt.Errorf("tenant %s: %w", one.tenant, err)
			}
			return nil
		})
	}
	return group.Wait()
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

// recordLine is a record in a file, a line each.
type recordLine struct {
	Tenant string          `json:"tenant"`
	Record json.RawMessage `json:"record"`
}
