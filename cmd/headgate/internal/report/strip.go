package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Strip is one line of a picture over time: a label and one mark a slice of time.
type Strip struct {
	Label string
	// Counts become bars, unless Marks says what to draw. Clipped counts do not set the scale: they may go beyond it.
	Counts  []int
	Clipped bool
	Marks   []rune
	// Note follows the line.
	Note string
}

// bars are the marks of counts, from none to the most.
var bars = []rune(" ▁▂▃▄▅▆▇█")

// WriteStrips draws strips below each other, their bars on one scale, with a ruler below that counts parts: a part is
// every slices, and lasts as long as said.
func WriteStrips(to io.Writer, strips []Strip, every int, part time.Duration) {
	most, width, length := 0, 0, 0
	for _, s := range strips {
		width, length = max(width, utf8.RuneCountInString(s.Label)), max(length, len(s.Counts), len(s.Marks))
		if len(s.Counts) > 0 && !s.Clipped {
			most = max(most, slices.Max(s.Counts))
		}
	}
	for _, s := range strips {
		marks := s.Marks
		if marks == nil {
			marks = draw(s.Counts, most)
		}
		fmt.Fprintf(to, "  %-*s │%-*s│ %s\n", width, s.Label, length, string(marks), s.Note)
	}
	unit := "seconds"
	if part != time.Second {
		unit = "times " + Short(part)
	}
	fmt.Fprintf(to, "  %-*s └%s┘ %s; a full bar is %d jobs or more\n", width, "", ruler(length, every), unit, most)
}

// draw returns bars for counts. Whatever is not 0 shows.
func draw(counts []int, most int) []rune {
	marks := make([]rune, len(counts))
	for i, n := range counts {
		level := 0
		if n > 0 {
			level = max(1, (min(n, most)*(len(bars)-1)+most/2)/max(1, most))
		}
		marks[i] = bars[level]
	}
	return marks
}

// ruler writes a number under every fifth part, where it begins.
func ruler(length, every int) string {
	line := []rune(strings.Repeat("─", length))
	for part := 0; part*every < length; part += 5 {
		for i, digit := range []rune(strconv.Itoa(part)) {
			if at := part*every + i; at < length {
				line[at] = digit
			}
		}
	}
	return string(line)
}

// Spark returns a line of bars, one for each value, the highest for most. Below 0 is not known, and a blank. Without a most, 0 or below, it
// is that of the values.
func Spark(values []float64, most float64) string {
	if most <= 0 {
		for _, v := range values {
			most = max(most, v)
		}
	}
	var line strings.Builder
	for _, v := range values {
		switch {
		case v < 0:
			line.WriteRune(' ')
		case most <= 0:
			line.WriteRune(bars[1])
		default:
			line.WriteRune(bars[1+min(int(v/most*float64(len(bars)-1)), len(bars)-2)])
		}
	}
	return line.String()
}

// Squeeze makes width values of more: the highest of each stretch.
func Squeeze(values []float64, width int) []float64 {
	if len(values) <= width {
		return values
	}
	all := make([]float64, width)
	for i := range all {
		all[i] = -1
		for _, v := range values[i*len(values)/width : (i+1)*len(values)/width] {
			all[i] = max(all[i], v)
		}
	}
	return all
}
