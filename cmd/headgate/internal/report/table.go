package report

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// Widths of tables, in columns of a terminal.
const (
	// usualWidth is that of a table that goes elsewhere than to a terminal.
	usualWidth = 120
	// leastWidth is that of the narrowest terminal whose tables are made to fit, leastCell that of a cell that is wrapped.
	leastWidth, leastCell = 60, 16
)

// Table is a table in the style of the house, no wider than the terminal it goes to: its widest cells are wrapped. It is for one
// goroutine.
type Table struct {
	writer  table.Writer
	configs []table.ColumnConfig
	widths  []int // of the widest cell of each column
	most    int
}

// NewTable returns a table. The first columns, as many as words, are to the left; the others hold numbers.
func NewTable(to io.Writer, words int, header ...any) *Table {
	t := &Table{writer: table.NewWriter(), most: widthOf(to), widths: make([]int, len(header))}
	t.writer.SetOutputMirror(to)
	t.writer.SetStyle(table.StyleRounded)
	t.writer.Style().Format.Header = text.FormatDefault
	t.writer.AppendHeader(header)
	t.measure(header)
	for i := range header {
		align := text.AlignDefault
		if i >= words {
			align = text.AlignRight
		}
		t.configs = append(t.configs, table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align})
	}
	return t
}

// widthOf returns how wide what is written there may be.
func widthOf(to io.Writer) int {
	if file, ok := to.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil {
			return max(width, leastWidth)
		}
	}
	return usualWidth
}

// Left puts the text of a column, counted from 1, to the left.
func (t *Table) Left(column int) {
	t.configs[column-1].Align, t.configs[column-1].AlignHeader = text.AlignDefault, text.AlignDefault
}

// AppendRow adds a row.
func (t *Table) AppendRow(row table.Row) {
	t.writer.AppendRow(row)
	t.measure(row)
}

// AppendRows adds rows.
func (t *Table) AppendRows(rows []table.Row) {
	for _, row := range rows {
		t.AppendRow(row)
	}
}

// AppendSeparator adds a line between rows.
func (t *Table) AppendSeparator() { t.writer.AppendSeparator() }

func (t *Table) measure(row []any) {
	for i, cell := range row {
		t.widths[i] = max(t.widths[i], text.LongestLineLen(fmt.Sprint(cell)))
	}
}

// Render writes the table.
func (t *Table) Render() {
	excess := 1 - t.most
	for _, width := range t.widths {
		excess += width + 3 // a blank on both sides, and a line
	}
	for excess > 0 {
		widest := slices.Index(t.widths, slices.Max(t.widths))
		fit := max(leastCell, t.widths[widest]-excess)
		if fit >= t.widths[widest] {
			break // Nothing is left to be wrapped.
		}
		excess -= t.widths[widest] - fit
		t.widths[widest] = fit
		config := &t.configs[widest]
		config.WidthMax, config.WidthMaxEnforcer = fit, text.WrapSoft
		config.Align, config.AlignHeader = text.AlignDefault, text.AlignDefault
	}
	t.writer.SetColumnConfigs(t.configs)
	t.writer.Render()
}
