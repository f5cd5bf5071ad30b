package command

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/headgate/headgate/loadtest/internal/record"
)

// paintEvery is how often the bar is painted at most.
const paintEvery = 100 * time.Millisecond

// progress shows how far a run is, on a terminal only. The zero progress shows nothing.
type progress struct{ bar *progressbar.ProgressBar }

// newProgress returns a bar that is full when all jobs have ended.
func newProgress(to io.Writer, title string, jobs int, quiet bool) progress {
	file, ok := to.(*os.File)
	if quiet || !ok || !term.IsTerminal(int(file.Fd())) { //nolint:gosec // A descriptor is a small number.
		return progress{}
	}
	return progress{progressbar.NewOptions(2*jobs, progressbar.OptionSetWriter(to), progressbar.OptionSetDescription(title),
		progressbar.OptionThrottle(paintEvery), progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetWidth(40))}
}

// show moves the bar: half of it is sending, half what comes after.
func (p progress) show(now record.Progress) {
	if p.bar != nil {
		_ = p.bar.Set64(now.Sent + now.Ended + now.Answered - now.Admitted) // A terminal that is gone is no reason to stop.
	}
}

func (p progress) done() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
