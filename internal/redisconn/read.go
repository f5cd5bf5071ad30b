package redisconn

import (
	"strconv"
	"strings"
)

// TextAt returns the text at a place of a reply to HMGET, "" for nil.
func TextAt(values []any, i int) string {
	if i >= len(values) {
		return ""
	}
	text, _ := values[i].(string)
	return text
}

// Whole reads what a script wrote; empty is zero.
func Whole(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// ParseInfo returns the fields of INFO.
func ParseInfo(info string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// Behind is the start of an XRANGE after a position, "" for the begin.
func Behind(position string) string {
	if position == "" {
		return "-"
	}
	return "(" + position
}
