package admission

import (
	"strconv"
	"time"
	"unique"
)

const (
	// SubWindows is how many parts of a sliding window are counted apart: what was taken in one comes back as all of it is a window old.
	SubWindows = 10
	// MaxLogTokens is the largest limit of a sliding log, which keeps logEntry bytes of each call that it let through.
	MaxLogTokens Tokens = 1000

	logEntry = 11
)

// SlidingWindow returns a limit of so many tokens in every time as long as the window, a length from 1s to 31 days in whole seconds, as
// time.ParseDuration reads it. What was taken is counted in SubWindows parts of the window, and comes back when the whole part is a window old: up
// to a tenth of a window late, never early. The error is a *FieldError of the field window.
func SlidingWindow(tokens Tokens, window string) (Limit, error) {
	length, err := windowLength(window, "")
	return sliding(tokens, length, length/SubWindows), err
}

// SlidingLog is SlidingWindow to the microsecond: each call that was let through is kept until it is a window old. Tokens are MaxLogTokens at most.
func SlidingLog(tokens Tokens, window string) (Limit, error) {
	length, err := windowLength(window, "")
	return sliding(tokens, length, time.Microsecond), err
}

func sliding(tokens Tokens, length, grain time.Duration) Limit {
	return Limit{Tokens: tokens, Per: length, Burst: tokens, Window: Window{unique.Make(windowRule{length: length, grain: grain})}}
}

// windowLength reads the length of a window; or is what else is allowed.
func windowLength(text, or string) (time.Duration, error) {
	length, err := time.ParseDuration(text)
	if err != nil || length < MinWindow || length > MaxLimitPer || length%time.Second != 0 {
		return MinWindow, &FieldError{"window", quote(text), MinWindow.String() + " to " + MaxLimitPer.String() + " in whole seconds" + or}
	}
	return length, nil
}

// Grain returns how exactly a sliding window knows when something was taken, a tenth of it or a microsecond; zero of a fixed one.
func (w Window) Grain() time.Duration {
	if w.IsZero() {
		return 0
	}
	return w.rule.Value().grain
}

// Logged reports whether it is that of a sliding log.
func (w Window) Logged() bool { return w.Grain() == time.Microsecond }

// validateLog checks that a sliding log is no longer than it may be.
func (l Limit) validateLog(path string) error {
	if !l.Window.Logged() || l.Tokens <= MaxLogTokens {
		return nil
	}
	most := strconv.FormatInt(int64(MaxLogTokens), 10)
	return &FieldError{
		path + ".tokens", strconv.FormatInt(int64(l.Tokens), 10),
		"1 to " + most + " of a sliding log, which keeps " + strconv.Itoa(logEntry) + " bytes of each: " + strconv.Itoa(int(MaxLogTokens)*logEntry/1000) + " kB a bucket; a sliding_window has no such bound",
	}
}
