package policydoc

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
)

// object is a JSON object with fields of its own, which the schema has once and refers to by name.
type object struct {
	name string // in "$defs"; that of the document itself is ""
	// title is the object's heading in the reference.
	title, doc string
	fields     []field
	// needs are the fields that must be there.
	needs []string
	// rule is JSON Schema that binds several fields; nil where each is on its own.
	rule map[string]any
}

// field is a member of an object.
type field struct {
	name string
	kind kind
	// unset says what is in force where the field is not there.
	unset string
	doc   string
}

// kind is what a value may be.
type kind interface {
	// schema is the JSON Schema of the value.
	schema() map[string]any
	// allowed says the same to people, in Markdown.
	allowed() string
}

// whole is a whole number. zero says that 0 is taken as if the field were not there.
type whole struct {
	low, high int64
	zero      bool
}

func (w whole) schema() map[string]any {
	low := w.low
	if w.zero {
		low = 0
	}
	return map[string]any{"type": "integer", "minimum": low, "maximum": w.high}
}

func (w whole) allowed() string {
	return thousands(w.low) + " to " + thousands(w.high)
}

// thousands writes a number in groups of three digits.
func thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// share is a part of a whole: above 0, at most 1. 0 is taken as if the field were not there.
type share struct{}

func (share) schema() map[string]any {
	return map[string]any{"type": "number", "minimum": 0, "maximum": 1}
}

func (share) allowed() string { return "above 0, at most 1" }

// gains are numbers from 0 to policy.MaxGain.
type gains struct{}

func (gains) schema() map[string]any {
	return map[string]any{"type": "number", "minimum": 0, "maximum": policy.MaxGain}
}

func (gains) allowed() string { return fmt.Sprintf("0 to %g", policy.MaxGain) }

// between are numbers from one to another.
type between struct{ low, high float64 }

func (b between) schema() map[string]any {
	return map[string]any{"type": "number", "minimum": b.low, "maximum": b.high}
}

func (b between) allowed() string { return fmt.Sprintf("%g to %g", b.low, b.high) }

// span is a duration as text.
type span struct{ low, high time.Duration }

// spanPattern is what time.ParseDuration reads of durations above zero.
const spanPattern = `^\+?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`

func (s span) schema() map[string]any {
	return map[string]any{"type": "string", "pattern": spanPattern}
}

func (s span) allowed() string { return spanText(s.low) + " to " + spanText(s.high) }

// spanText writes a duration as a policy does, days as days.
func spanText(d time.Duration) string {
	const day = 24 * time.Hour
	if d > day && d%day == 0 {
		return fmt.Sprintf("%d days (%dh)", d/day, d/time.Hour)
	}
	return admission.DurationText(d)
}

// choice is one of some texts.
type choice []string

func (c choice) schema() map[string]any { return map[string]any{"enum": []string(c)} }

func (c choice) allowed() string {
	quoted := make([]string, len(c))
	for i, one := range c {
		quoted[i] = "`" + one + "`"
	}
	return strings.Join(quoted, ", ")
}

// toggle is true or false.
type toggle struct{}

func (toggle) schema() map[string]any { return map[string]any{"type": "boolean"} }
func (toggle) allowed() string        { return "`true`, `false`" }

// text is any text.
type text struct{}

func (text) schema() map[string]any { return map[string]any{"type": "string"} }

func (text) allowed() string { return "any text" }

// name is a text of a pattern, and of none other that never is, if there is one.
type name struct{ pattern, never, says string }

func (n name) schema() map[string]any {
	schema := n.match()
	schema["type"] = "string"
	return schema
}

func (n name) match() map[string]any {
	match := map[string]any{"pattern": n.pattern}
	if n.never != "" {
		match["not"] = map[string]any{"pattern": n.never}
	}
	return match
}

func (n name) allowed() string { return n.says }

// of is an object of the table.
type of string

func (o of) schema() map[string]any { return map[string]any{"$ref": "#/$defs/" + string(o)} }
func (o of) allowed() string        { return "[" + string(o) + "](#" + string(o) + ")" }

// without is an object of the table in which one field is refused.
type without struct {
	of
	field string
}

func (w without) schema() map[string]any {
	schema := w.of.schema()
	schema["not"] = map[string]any{"required": []string{w.field}}
	return schema
}

// named is an object whose members are named by whoever writes the policy.
type named struct {
	keys  name
	value kind
	// needs are members that must be there.
	needs []string
}

func (n named) schema() map[string]any {
	schema := map[string]any{
		"type": "object", "propertyNames": n.keys.match(), "additionalProperties": n.value.schema(),
	}
	if len(n.needs) > 0 {
		schema["required"] = n.needs
	}
	return schema
}

func (n named) allowed() string { return "by " + n.keys.says + ": " + n.value.allowed() }

// list is an array.
type list struct {
	least, most int
	value       kind
}

func (l list) schema() map[string]any {
	return map[string]any{"type": "array", "minItems": l.least, "maxItems": l.most, "items": l.value.schema()}
}

func (l list) allowed() string {
	return fmt.Sprintf("a list of %s to %s: %s", thousands(int64(l.least)), thousands(int64(l.most)), l.value.allowed())
}
