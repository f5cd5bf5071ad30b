package trace

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

// CostColumns names the columns of a trace of calls whose cost was known only afterwards: those of the Azure LLM inference traces unless told
// otherwise. An empty name means the default.
type CostColumns struct {
	Arrival, Context, Generated, Tenant, Type string
}

// All lists the columns.
func (c *CostColumns) All() []Column {
	return []Column{
		{"arrival", "TIMESTAMP", "when the call began", nil, &c.Arrival},
		{"context", "ContextTokens", "what of its cost was known before", new("0"), &c.Context},
		{"generated", "GeneratedTokens", "what was known afterwards", nil, &c.Generated},
		{"tenant", "tenant", "tenant, by which costs are learned", new("all"), &c.Tenant},
		{"type", "type", "type, by which costs are learned", new("call"), &c.Type},
	}
}

// Call is one call of such a trace. It is a plain value.
type Call struct {
	Arrival      time.Time
	Tenant, Type string
	// Context is what was known of its cost before, Generated what afterwards, in whole tokens, rounded up.
	Context, Generated admission.Tokens
}

// Cost is what it has cost.
func (c *Call) Cost() admission.Tokens { return c.Context + c.Generated }

// ReadCosts reads such a trace, as Read reads another, in the order of arrivals.
func ReadCosts(from io.Reader, columns CostColumns, limit int) (calls []Call, bad []BadRow, err error) {
	buffered := bufio.NewReaderSize(from, maxLine)
	if mark, _ := buffered.Peek(3); string(mark) == "\ufeff" {
		_, _ = buffered.Discard(3) // What was peeked at is there.
	}
	reader := csv.NewReader(buffered)
	reader.FieldsPerRecord, reader.ReuseRecord = -1, true
	header, err := reader.Read()
	if errors.Is(err, io.EOF) {
		return nil, nil, ErrEmpty
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read header: %w", err)
	}
	at, err := findAll(columns.All(), slices.Clone(header))
	if err != nil {
		return nil, nil, err
	}
	for width := len(header); limit <= 0 || len(calls)+len(bad) < limit; {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if syntax, ok := errors.AsType[*csv.ParseError](err); ok {
			bad = append(bad, BadRow{syntax.StartLine, syntax.Err})
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read rows: %w", err)
		}
		line, _ := reader.FieldPos(0)
		call, err := callOf(at, record, width)
		if err != nil {
			bad = append(bad, BadRow{line, err})
			continue
		}
		calls = append(calls, call)
	}
	slices.SortStableFunc(calls, func(a, b Call) int { return a.Arrival.Compare(b.Arrival) })
	return calls, bad, nil
}

// callOf reads one record and reports every bad cell at once.
func callOf(at []cell, record []string, width int) (c Call, err error) {
	if len(record) != width {
		return c, fmt.Errorf("%d cells where the header has %d", len(record), width)
	}
	var bad []error
	fault := func(err error) {
		if err != nil {
			bad = append(bad, err)
		}
	}
	c.Tenant, c.Type = strings.Clone(at[3].of(record)), strings.Clone(at[4].of(record))
	fault(present("tenant", c.Tenant, admission.ValidateTenant))
	fault(present("type", c.Type, func(name string) error { return admission.ValidateName("type", name, false) }))
	c.Arrival, err = arrival(at[0].of(record))
	fault(err)
	context, err := number("context", at[1].of(record), float64(admission.MaxCost))
	fault(err)
	generated, err := number("generated", at[2].of(record), float64(admission.MaxCost))
	fault(err)
	c.Context, c.Generated = admission.Tokens(math.Ceil(context)), admission.Tokens(math.Ceil(generated))
	if len(bad) > 0 {
		return Call{}, oneLine(bad)
	}
	return c, nil
}
