package outage

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
)

// replyError is an error of Redis itself.
type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

func unavailable(err error) error { return errors.Join(admission.ErrUnavailable, err) }

// said counts lines of the log above debug by level and message.
func said(log *bytes.Buffer) string {
	var lines []string
	for line := range strings.Lines(log.String()) {
		for level, mark := range map[string]string{"error": "!", "info": "+"} {
			if strings.Contains(line, `"level":"`+level+`"`) {
				_, message, _ := strings.Cut(line, `"message":"`)
				message, _, _ = strings.Cut(message, `"`)
				lines = append(lines, mark+message)
			}
		}
	}
	return strings.Join(lines, "; ")
}

func TestAnOutageIsToldOnceHoweverManyFindIt(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	watch := NewWatch(zerolog.New(&log))
	all := make([]*Trouble, 8)
	for i := range all {
		all[i] = watch.Trouble(fmt.Sprint("call ", i), 1, 1)
	}
	for range 5 {
		for _, trouble := range all {
			trouble.Note(unavailable(errors.New("connection refused")))
		}
	}
	for i, trouble := range all {
		if i > 0 {
			trouble.Over()
		}
	}
	const begins = "!redis does not answer, trying again"
	if got := said(&log); got != begins {
		t.Errorf("while one has no answer: %s", got)
	}
	all[0].Over()
	all[0].Over()
	if got := said(&log); got != begins+"; +redis answers again" || !strings.Contains(log.String(), `"failures":40`) {
		t.Errorf("got %s in\n%s", got, log.String())
	}
	all[3].Note(unavailable(errors.New("connection refused")))
	all[3].Leave()
	all[4].Note(unavailable(errors.New("connection refused")))
	if got := said(&log); strings.Count(got, begins) != 3 {
		t.Errorf("after one that left: %s", got)
	}
}

// TestASlotThatMovesIsNoOutage, unless the call fails again.
func TestASlotThatMovesIsNoOutage(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	trouble := NewWatch(zerolog.New(&log)).Trouble("finish", 1, 1)
	trouble.Note(unavailable(replyError("MOVED 17 127.0.0.1:7001")))
	trouble.Over()
	if got := said(&log); got != "" {
		t.Errorf("got %s", got)
	}
	trouble.Note(unavailable(replyError("MOVED 17 127.0.0.1:7001")))
	trouble.Note(unavailable(replyError("CLUSTERDOWN The cluster is down")))
	trouble.Over()
	if got := said(&log); got != "!redis does not answer, trying again; +redis answers again" {
		t.Errorf("got %s", got)
	}
}

// TestAnErrorOfRedisIsNoOutage: it answers.
func TestAnErrorOfRedisIsNoOutage(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	trouble := NewWatch(zerolog.New(&log)).Trouble("promote", 1, 1)
	for range 3 {
		trouble.Note(replyError("ERR user_script:3: bad argument #1 to 'byte'"))
	}
	trouble.Over()
	if got := said(&log); got != "!redis answers with an error, trying again" {
		t.Errorf("got %s", got)
	}
}
