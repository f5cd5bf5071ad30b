package crash_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"
)

// book is what a process has seen, one line an event, written before anything follows from it. A process that is
// killed leaves every line that it has written: they are the kernel's by then. Several goroutines may write.
//
//	producer  S NUMBER: about to ask · A NUMBER: admitted · R NUMBER REASON: refused · X NUMBER: it will never know
//	replicated  A NANOS NUMBER BOOL: admitted, and whether the replica was not heard in time
//	producer of parts  A NANOS NANOS KEY BOOL: a call from then until then, admitted, as above · E NANOS NANOS KIND: one that failed
//	worker    B NANOS KEY ATTEMPT SUSPECT: a handler begins · E NANOS KEY: it ends · F NANOS KEY OUTCOME: Redis took note
//	offerer   A ID DOWNSTREAM: admitted
//	caller    T and F NANOS KEY DOWNSTREAM TOKEN: as above, with what became of it · K NANOS DOWNSTREAM STATE: heard of the
//	          fleet's breaker · L NANOS DOWNSTREAM BOOL: lonely · N NANOS BOOL: its network is cut
//	downstream  P PORT: where it listens · C NANOS KEY TOKEN: a call
type book struct {
	mu   sync.Mutex
	file *os.File
}

func openBook(path string) (*book, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &book{file: file}, nil
}

// note writes a line of words. A book that cannot be written ends the process, for nothing it says counts any more.
func (b *book) note(words ...any) {
	line := fmt.Sprintln(words...)
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.file.WriteString(line); err != nil {
		fmt.Fprintln(os.Stderr, "book:", err)
		os.Exit(1)
	}
}

// readBook calls each for the words of every whole line. A book that nobody has begun is empty.
func readBook(path string, each func(words []string)) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		each(strings.Fields(lines.Text()))
	}
	return lines.Err()
}

// nanos is the time by which the events of several processes of one machine are put in order.
func nanos() int64 { return time.Now().UnixNano() }
