package report

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// Painter shows progress: a picture painted over the one before on a terminal, a line every few seconds
// elsewhere. It is for one goroutine.
type Painter struct {
	to    io.Writer
	file  *os.File // the terminal; nil if there is none
	every time.Duration
	lines int
	last  time.Time
	said  string
}

// How often progress shows.
const (
	// PaintEvery is the pace at which to call Paint.
	PaintEvery = 200 * time.Millisecond
	lineEvery  = 2 * time.Second
)

// NewPainter returns a painter on to, which is a terminal if it is a file that is one.
func NewPainter(to io.Writer) *Painter {
	p := &Painter{to: to, every: lineEvery}
	if file, ok := to.(*os.File); ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb" {
		p.file = file
	}
	return p
}

// Paint shows progress: picture on a terminal, line elsewhere, only when it is another one and the last is some time ago.
func (p *Painter) Paint(picture, line string) {
	if p.file != nil {
		p.repaint(picture)
		return
	}
	if now := time.Now(); line != p.said && now.Sub(p.last) >= p.every {
		p.last, p.said = now, line
		fmt.Fprintln(p.to, line)
	}
}

// Done leaves the last picture as it is, or takes it away, and lets others write below.
func (p *Painter) Done(wipe bool) {
	if p.file != nil && wipe && p.lines > 0 {
		fmt.Fprintf(p.to, "\x1b[%dA\x1b[J", p.lines)
	}
	p.lines = 0
}

// repaint goes up to the first line of the picture before and writes over it. Lines are cut to the width of the
// terminal: one that wraps would make the count of lines wrong.
func (p *Painter) repaint(picture string) {
	width, height, err := term.GetSize(int(p.file.Fd()))
	if err != nil || width < 1 || height < 2 {
		width, height = 80, 24
	}
	lines := strings.Split(strings.TrimRight(picture, "\n"), "\n")
	lines = lines[:min(len(lines), height-1)]
	var text strings.Builder
	if p.lines > 0 {
		fmt.Fprintf(&text, "\x1b[%dA", p.lines)
	}
	for _, line := range lines {
		text.WriteString("\x1b[2K" + cut(line, width) + "\n")
	}
	text.WriteString("\x1b[J")
	p.lines = len(lines)
	_, _ = io.WriteString(p.to, text.String()) // Progress that cannot be shown is not worth a failure.
}

func cut(line string, width int) string {
	runes := []rune(line)
	return string(runes[:min(len(runes), width)])
}

// Bar returns a bar of width cells, part of it full.
func Bar(part float64, width int) string {
	full := max(0, min(width, int(part*float64(width)+0.5)))
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}
