package deliver

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/worker"
)

// Where a job's cost is told: a header of an answer, or the first file that a command is given beside its standard ones.
const (
	headerCost = "Headgate-Cost"
	costFile   = "file descriptor 3"
)

// tellCost tells what a job has cost, where that is said. Of what is no cost warn is told, and the job's reservation stands.
func tellCost(ctx context.Context, job *worker.Job[[]byte], where string, values []string, warn func(error)) {
	if len(values) == 0 {
		return
	}
	if err := setCost(ctx, where, values); err != nil {
		warn(fmt.Errorf("job %s of tenant %s: %w: its reservation stands", job.ID, job.Tenant, err))
	}
}

func setCost(ctx context.Context, where string, values []string) error {
	cost, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || len(values) > 1 {
		text := strings.Join(values, ", ")
		return &admission.FieldError{Field: where, Value: strconv.Quote(text[:min(len(text), 64)]), Allowed: fmt.Sprintf("one whole number, 0 to %d tokens", admission.MaxActualCost)}
	}
	return worker.SetCost(ctx, admission.Tokens(cost))
}

const (
	// maxCostText is how much of what a command writes is kept, its end: no number that is allowed is longer.
	maxCostText = 64
	// costGrace is how long what is left of it may take once the command has ended: something that has left its process group may hold the file.
	costGrace = 100 * time.Millisecond
)

// costPipe takes what a command writes to costFile.
type costPipe struct {
	read, write *os.File
	said        tail
	done        chan struct{}
}

// newCostPipe returns a pipe, nil where commands are given no files but the standard ones.
func newCostPipe() (*costPipe, error) {
	if runtime.GOOS == "windows" {
		return nil, nil //nolint:nilnil // Nothing is told there.
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make the pipe of a command's cost: %w", err)
	}
	return &costPipe{read: read, write: write, said: tail{most: maxCostText}, done: make(chan struct{})}, nil
}

// files are those that the command is given.
func (p *costPipe) files() []*os.File {
	if p == nil {
		return nil
	}
	return []*os.File{p.write}
}

// begin takes what is written from now on. The command has its own end of the pipe, or none because it did not start.
func (p *costPipe) begin() {
	if p == nil {
		return
	}
	_ = p.write.Close()
	go func() {
		defer close(p.done)
		_, _ = io.Copy(&p.said, p.read)
	}()
}

// end returns the lines that were written, and frees the pipe.
func (p *costPipe) end() []string {
	if p == nil {
		return nil
	}
	_ = p.read.SetReadDeadline(time.Now().Add(costGrace))
	<-p.done
	_ = p.read.Close()
	return strings.Fields(p.said.text())
}
