package report

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// Widths of tables, in columns of a terminal: leastWidth is that of the narrowest whose tables are made to fit, leastCell that of a cell that
// is wrapped.
const leastWidth, leastCell = 60, 16

// Table is a table in the style of the house, no wider than the terminal it goes to: its widest cells are wrapped, but a name or an id never is
// cut, for somebody may copy it. One that goes elsewhere is as wide as it is, so that a program finds a row on a line. It is for one goroutine.
type Table struct {
	writer  table.Writer
	configs []table.ColumnConfig
	widths  []int // of the widest cell of each column
	least   []int // of the narrowest that each column may be
	most    int   // 0 for no bound
}

// NewTable returns a table. The first columns, as many as words, are to the left; the others hold numbers.
func NewTable(to io.Writer, words int, header ...any) *Table {
	t := &Table{writer: table.NewWriter(), most: widthOf(to), widths: make([]int, len(header)), least: make([]int, len(header))}
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

// widthOf returns how wide what is written there may be, 0 where that is no terminal, or one that does not say.
func widthOf(to io.Writer) int {
	if file, ok := to.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return max(width, leastWidth)
		}
	}
	return 0
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
		said := fmt.Sprint(cell)
		t.widths[i] = max(t.widths[i], text.LongestLineLen(said))
		for word := range strings.FieldsSeq(said) {
			if strings.Trim(word, inNames) == "" {
				t.least[i] = max(t.least[i], len(word))
			}
		}
	}
}

// inNames are the characters of names and ids, as package admission takes them.
const inNames = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@/-"

// Render writes the table.
func (t *Table) Render() {
	excess := 1 - t.most
	for _, width := range t.widths {
		excess += width + 3 // a blank on both sides, and a line
	}
	for t.most > 0 && excess > 0 {
		widest := t.widest()
		if widest < 0 {
			break // Nothing is left to be wrapped.
		}
		fit := max(leastCell, t.least[widest], t.widths[widest]-excess)
		excess -= t.widths[widest] - fit
		t.widths[widest] = fit
		config := &t.configs[widest]
		config.WidthMax, config.WidthMaxEnforcer = fit, text.WrapSoft
		config.Align, config.AlignHeader = text.AlignDefault, text.AlignDefault
	}
	t.writer.SetColumnConfigs(t.configs)
	t.writer.Render()
}

// widest returns the widest of the columns that may be narrower, -1 where none may.
func (t *Table) widest() int {
	widest := -1
	for i, width := range t.widths {
		if width > max(leastCell, t.least[i]) && (widest < 0 || width > t.widths[widest]) {
			widest = i
		}
	}
	return widest
}
