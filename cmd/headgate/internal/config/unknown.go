package config

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/admission"
)

// UnknownKeyError is a key that is no option's.
type UnknownKeyError struct {
	Key string
	// Near is the option that may have been meant; empty if none is near.
	Near string
}

// Error names the key and what may have been meant.
func (e *UnknownKeyError) Error() string {
	if e.Near == "" {
		return "unknown key " + e.Key + ": headgate config reference has those that there are"
	}
	return "unknown key " + e.Key + ": did you mean " + e.Near + "?"
}

// Is makes every UnknownKeyError match headgate.ErrInvalid.
func (e *UnknownKeyError) Is(target error) bool { return target == admission.ErrInvalid }

// maxEdits is how many slips of the pen lie between what was written and what was meant.
const maxEdits = 2

// nearest returns the known name that is fewest edits away from a name, empty if all are far.
func nearest(name string, known []string) string {
	best := slices.MinFunc(known, func(a, b string) int { return cmp.Or(edits(name, a)-edits(name, b), cmp.Compare(a, b)) })
	if edits(name, best) > maxEdits {
		return ""
	}
	return best
}

// edits is the Levenshtein distance of two texts, in bytes, or more than maxEdits if their lengths say so.
func edits(a, b string) int {
	if max(len(a)-len(b), len(b)-len(a)) > maxEdits {
		return maxEdits + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
