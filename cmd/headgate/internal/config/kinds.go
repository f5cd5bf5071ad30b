package config

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

// kind is a value of type T at a place in a Config.
type kind[T any] struct {
	name, allowed string
	at            func(*Config) *T
	parse         func(string) (T, error) // of text
	convert       func(any) (T, bool)     // of what a file holds
	valid         func(T) bool
	text          func(T) string
	written       func(T) any // as a file has it; nil for text
}

func (k kind[T]) Type() string    { return k.name }
func (k kind[T]) Allowed() string { return k.allowed }
func (k kind[T]) Example() string { return "" }

func (k kind[T]) form(any, bool) string { return "" }

func (k kind[T]) read(to *Config, raw any, text bool) (bad []string) {
	v, ok := k.convert(raw)
	if s, isText := raw.(string); text && isText {
		var err error
		v, err = k.parse(s)
		ok = err == nil
	}
	if !ok {
		return []string{quote(raw)}
	}
	if !k.valid(v) {
		return []string{k.shown(v)}
	}
	*k.at(to) = v
	return nil
}

func (k kind[T]) shown(v T) string {
	if s, ok := any(v).(string); ok {
		return cut(strconv.Quote(s))
	}
	return k.text(v)
}

func (k kind[T]) show(from *Config) string { return k.text(*k.at(from)) }

func (k kind[T]) plain(from *Config) any {
	if k.written == nil {
		return k.show(from)
	}
	return k.written(*k.at(from))
}

// quote shows a value that is of a wrong type, in one line that is not too long.
func quote(raw any) string { return cut(quoteJSON(raw)) }

// cut bounds a value in an error.
func cut(text string) string {
	const most = 64
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return text
}

// quoteJSON writes a value on one line.
func quoteJSON(v any) string {
	bytes, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("of type %T", v) // A number that is none.
	}
	return string(bytes)
}

// whole reads a whole number in any of the forms of the parsers.
func whole(raw any) (int, bool) {
	switch n := raw.(type) {
	case int:
		return n, true
	case int64:
		return int(n), true
	case float64: // JSON knows no other.
		return int(n), n == math.Trunc(n) && math.Abs(n) < 1<<53
	}
	return 0, false
}

func count(low, high int, at func(*Config) *int) value {
	return kind[int]{
		name: "whole number", allowed: fmt.Sprintf("%d to %d", low, high), at: at, parse: strconv.Atoi, convert: whole,
		valid: func(n int) bool { return n >= low && n <= high }, text: strconv.Itoa, written: func(n int) any { return n },
	}
}

func duration(low, high time.Duration, at func(*Config) *time.Duration) value {
	return kind[time.Duration]{
		name: "duration", allowed: admission.DurationText(low) + " to " + admission.DurationText(high), at: at, parse: time.ParseDuration,
		convert: func(raw any) (time.Duration, bool) {
			text, ok := raw.(string)
			d, err := time.ParseDuration(text)
			return d, ok && err == nil
		},
		valid: func(d time.Duration) bool { return d >= low && d <= high }, text: time.Duration.String,
	}
}

func boolean(at func(*Config) *bool) value {
	return kind[bool]{
		name: "bool", allowed: "true or false", at: at, parse: strconv.ParseBool,
		convert: func(raw any) (bool, bool) { b, ok := raw.(bool); return b, ok },
		valid:   func(bool) bool { return true }, text: strconv.FormatBool, written: func(b bool) any { return b },
	}
}

// text is any text for which valid, if it is not nil, says so.
func text(allowed string, valid func(string) bool, at func(*Config) *string) value {
	return newText(allowed, valid, at)
}

func newText(allowed string, valid func(string) bool, at func(*Config) *string) kind[string] {
	if valid == nil {
		valid = func(string) bool { return true }
	}
	return kind[string]{
		name: "text", allowed: allowed, at: at, parse: func(s string) (string, error) { return s, nil },
		convert: func(raw any) (string, bool) { s, ok := raw.(string); return s, ok },
		valid:   valid, text: func(s string) string { return s },
	}
}

func word(words []string, at func(*Config) *string) value {
	k := newText("one of "+strings.Join(words, ", "), func(s string) bool { return slices.Contains(words, s) }, at)
	k.convert = func(raw any) (string, bool) {
		if f, ok := raw.(float64); ok { // 1.2 is a word too.
			return strconv.FormatFloat(f, 'g', -1, 64), true
		}
		s, ok := raw.(string)
		return s, ok
	}
	return k
}

func ratio[R ~float64](at func(*Config) *R) value {
	return number("above 0, at most 1", func(r R) bool { return r > 0 && r <= 1 }, at)
}

// between is a number from low to high.
func between(low, high float64, at func(*Config) *float64) value {
	allowed := strconv.FormatFloat(low, 'g', -1, 64) + " to " + strconv.FormatFloat(high, 'g', -1, 64)
	return number(allowed, func(f float64) bool { return f >= low && f <= high }, at)
}

func number[R ~float64](allowed string, valid func(R) bool, at func(*Config) *R) value {
	return kind[R]{
		name: "number", allowed: allowed, at: at,
		parse: func(s string) (R, error) { f, err := strconv.ParseFloat(s, 64); return R(f), err },
		convert: func(raw any) (R, bool) {
			if f, ok := raw.(float64); ok {
				return R(f), true
			}
			n, ok := whole(raw)
			return R(n), ok
		},
		valid: valid, text: func(r R) string { return strconv.FormatFloat(float64(r), 'g', -1, 64) },
		written: func(r R) any { return float64(r) },
	}
}
