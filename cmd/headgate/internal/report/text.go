package report

import (
	"strings"
	"unicode"
)

// Tame makes a text that anybody may have written fit for a terminal: no control characters, no more than most runes; 0
// is no bound.
func Tame(text string, most int) string {
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text))
	if runes := []rune(text); most > 0 && len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
