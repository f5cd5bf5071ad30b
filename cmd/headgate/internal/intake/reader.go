package intake

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// maxLine is the longest line that is kept: the largest payload, escaped as wastefully as JSON allows, and the rest.
const maxLine = 8 << 20

// errTooLong is a line longer than that.
var errTooLong = fmt.Errorf("longer than %d MiB", maxLine>>20)

// numbered is a line that was read.
type numbered struct {
	number int // from 1
	text   []byte
	err    error // errTooLong, or why reading ended; io.EOF at the end
}

// read reads lines until the input ends, and sends them and at last the end. A read that waits for input cannot be
// interrupted, so when ctx ends first this goroutine is left behind until there is some.
func read(ctx context.Context, from io.Reader) <-chan numbered {
	lines := make(chan numbered, batchJobs)
	go func() {
		reader := bufio.NewReaderSize(from, 64<<10)
		for number := 1; ; number++ {
			text, err := readLine(reader)
			if number == 1 {
				text = bytes.TrimPrefix(text, []byte("\uFEFF")) // Some editors begin a file so.
			}
			select {
			case lines <- numbered{number, text, err}:
			case <-ctx.Done():
				return
			}
			if err != nil && !errors.Is(err, errTooLong) {
				return
			}
		}
	}()
	return lines
}

// readLine reads one line without its end. The last one needs none.
func readLine(reader *bufio.Reader) ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := reader.ReadSlice('\n')
		if long = long || len(line)+len(part) > maxLine; long {
			line = nil
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (len(line) == 0 && !long || !errors.Is(err, io.EOF)):
			return nil, err
		case long:
			return nil, errTooLong
		}
		return bytes.TrimSpace(line), nil
	}
}
