package admin

import (
	"bytes"
	"errors"
	"log"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Bounds of the log. Whoever has no credential writes it too.
const (
	longestPath   = 256
	longestMethod = 32
	longestReason = 256
	// strangerLines is how many lines a second are written of what has no credential, by cause; the next one says how many were not.
	strangerLines = 5
	maxCauses     = 1000
)

// journal is the log of calls and of connections. It writes all that has a credential, and some of what has none.
type journal struct {
	to zerolog.Logger
	mu struct {
		sync.Mutex

		causes map[string]*written
	}
}

// written is what was written of a cause in one second, and what was left out since the last line.
type written struct {
	second int64
	lines  int
	left   int64
}

// stranger begins a line of what has no credential, one of its cause; nil, which writes nothing, if there were enough in this second.
func (j *journal) stranger(level zerolog.Level, cause string) *zerolog.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	w := j.mu.causes[cause]
	if w == nil {
		if j.mu.causes == nil || len(j.mu.causes) >= maxCauses { // Causes are the server's words: that many would be a mistake of its own.
			j.mu.causes = map[string]*written{}
		}
		w = &written{}
		j.mu.causes[cause] = w
	}
	if now := time.Now().Unix(); now != w.second {
		w.second, w.lines = now, 0
	}
	if w.lines >= strangerLines {
		w.left++
		return nil
	}
	w.lines++
	line := j.to.WithLevel(level) //nolint:zerologlint // Who asked for it sends it.
	if w.left > 0 {
		line = line.Int64("left_out", w.left)
		w.left = 0
	}
	return line
}

// Write takes what net/http has to say: failed handshakes, above all. log.Logger calls it with a line.
func (j *journal) Write(line []byte) (int, error) {
	j.stranger(zerolog.WarnLevel, "net/http").Str("error", clip(string(bytes.TrimSpace(line)), longestReason)).Msg("connection")
	return len(line), nil
}

func newErrorLog(to *journal) *log.Logger { return log.New(to, "", 0) }

// clip shortens what a caller chose, at the border of a character.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// clipped shortens the text of an error.
func clipped(err error) error {
	if err == nil || len(err.Error()) <= longestReason {
		return err
	}
	return errors.New(clip(err.Error(), longestReason))
}
