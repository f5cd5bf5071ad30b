package trace

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
)

// Row is one request of the trace as a job.
type Row struct {
	// Line is the row's line in the file; the header's is 1.
	Line    int
	Arrival time.Time
	Type    string
	// Fails says that the downstream failed then, and so it does now, each time.
	Fails      bool
	RunTime    time.Duration
	Tenant     string
	Downstream string
	Cost       admission.Tokens
	// Bytes is the size of the payload.
	Bytes int
}

// BadRow is a row that cannot be a job.
type BadRow struct {
	Line int
	Err  error
}

// Trace is what a file held.
type Trace struct {
	// Rows are in the order of their arrival, ties in that of the file.
	Rows []Row
	// Bad are in the order of the file.
	Bad []BadRow
}

// Bounds of a trace.
const (
	maxRunTime = admission.MaxTimeout
	maxLine    = 1 << 20
)

// ErrEmpty means that the file has no header.
var ErrEmpty = errors.New("the file is empty: its first line must name the columns")

// Read reads a whole trace. limit is the largest number of rows taken, bad ones included; 0 means all.
func Read(from io.Reader, columns Columns, limit int) (*Trace, error) {
	buffered := bufio.NewReaderSize(from, maxLine)
	if mark, _ := buffered.Peek(3); string(mark) == "\ufeff" {
		_, _ = buffered.Discard(3) // What was peeked at is there.
	}
	reader := csv.NewReader(buffered)
	reader.FieldsPerRecord = -1
	reader.ReuseRecord = true
	header, err := reader.Read()
	if errors.Is(err, io.EOF) {
		return nil, ErrEmpty
	}
	if err != nil {
		return nil, fmt.Errorf("read header: %w", err)
	}
	at, err := columns.find(slices.Clone(header))
	if err != nil {
		return nil, err
	}
	width := len(header)
	t := &Trace{}
	for limit <= 0 || len(t.Rows)+len(t.Bad) < limit {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if syntax, ok := errors.AsType[*csv.ParseError](err); ok {
			t.Bad = append(t.Bad, BadRow{syntax.StartLine, syntax.Err})
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read rows: %w", err)
		}
		line, _ := reader.FieldPos(0)
		row, err := at.row(record, width)
		if err != nil {
			t.Bad = append(t.Bad, BadRow{line, err})
			continue
		}
		row.Line = line
		t.Rows = append(t.Rows, row)
	}
	slices.SortStableFunc(t.Rows, func(a, b Row) int { return a.Arrival.Compare(b.Arrival) })
	return t, nil
}

// Without returns the trace without the rows of a downstream, and how many those are.
func (t *Trace) Without(downstream string) (rest *Trace, gone int) {
	rest = &Trace{Bad: t.Bad}
	for i := range t.Rows {
		if t.Rows[i].Downstream != downstream {
			rest.Rows = append(rest.Rows, t.Rows[i])
		}
	}
	return rest, len(t.Rows) - len(rest.Rows)
}

// Span is the time between the first arrival and the last.
func (t *Trace) Span() time.Duration {
	if len(t.Rows) == 0 {
		return 0
	}
	return t.Rows[len(t.Rows)-1].Arrival.Sub(t.Rows[0].Arrival)
}
