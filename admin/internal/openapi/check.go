package openapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/headgate/headgate/admin/internal/problem"
)

// TakesBody reports whether the operation has a body.
func (o *Operation) TakesBody() bool { return o.body != nil }

// CheckBody returns what is wrong with a body, by its places, nothing if it is valid. An empty one is valid where none is
// required.
func (o *Operation) CheckBody(body []byte) []problem.Fault {
	if len(body) == 0 {
		if o.bodyNeeded {
			return []problem.Fault{problem.At("", "the body is missing")}
		}
		return nil
	}
	if fault, bad := unreadable(body); bad {
		return []problem.Fault{fault}
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return []problem.Fault{problem.At("", "the body is not one JSON value: "+err.Error())}
	}
	return faultsOf(o.body.Validate(value), func(place []string, detail string) problem.Fault {
		return problem.At(pointer(place), detail)
	})
}

// CheckQuery returns what is wrong with the query parameters.
func (o *Operation) CheckQuery(query url.Values) []problem.Fault {
	var faults []problem.Fault
	for name, values := range query {
		p, ok := o.parameters[name]
		switch {
		case !ok:
			faults = append(faults, problem.Fault{Parameter: name, Detail: "there is no such parameter; allowed is " + cmp.Or(strings.Join(o.parameterNames(), ", "), "none")})
		case len(values) > 1:
			faults = append(faults, problem.Fault{Parameter: name, Detail: "is there several times; allowed is once"})
		default:
			faults = append(faults, faultsOf(p.schema.Validate(p.value(values[0])), func(_ []string, detail string) problem.Fault {
				return problem.Fault{Parameter: name, Detail: detail}
			})...)
		}
	}
	slices.SortFunc(faults, func(a, b problem.Fault) int { return cmp.Compare(a.Parameter+a.Detail, b.Parameter+b.Detail) })
	return faults
}

// CheckPath returns what is wrong with the names in the path; value returns each.
func (o *Operation) CheckPath(value func(name string) string) []problem.Fault {
	var faults []problem.Fault
	for name, schema := range o.path {
		faults = append(faults, faultsOf(schema.Validate(value(name)), func(_ []string, detail string) problem.Fault {
			return problem.Fault{Parameter: name, Detail: detail}
		})...)
	}
	slices.SortFunc(faults, func(a, b problem.Fault) int { return cmp.Compare(a.Parameter+a.Detail, b.Parameter+b.Detail) })
	return faults
}

func (o *Operation) parameterNames() []string {
	var names []string
	for name := range o.parameters {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// value reads a parameter as its schema has it; what cannot be read stays a text, which the schema then refuses.
func (p parameter) value(text string) any {
	switch p.kind {
	case "integer":
		if _, err := strconv.ParseInt(text, 10, 64); err == nil {
			return json.Number(text)
		}
	case "boolean":
		if b, err := strconv.ParseBool(text); err == nil {
			return b
		}
	}
	return text
}

// unreadable finds what readers would not take alike: a member that an object has twice, and a number that no float64 holds.
// The schema's arithmetic is exact, and takes tens of milliseconds for a 1e999999.
func unreadable(body []byte) (problem.Fault, bool) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var at nesting
	for {
		token, err := decoder.Token()
		if err != nil {
			return problem.Fault{}, false // UnmarshalJSON says what is wrong.
		}
		top := len(at) - 1
		if name, ok := token.(string); ok && top >= 0 && at[top].names != nil && !at[top].value {
			if at[top].names[name] {
				return problem.At(pointer(append(at[:top].place(), name)), "is there several times; allowed is once"), true
			}
			at[top].names[name], at[top].name, at[top].value = true, name, true
			continue
		}
		if number, ok := token.(json.Number); ok && !holds(number) {
			return problem.At(pointer(at.place()), "is no number that a float64 holds"), true
		}
		switch token {
		case json.Delim('{'):
			at = append(at, level{names: map[string]bool{}})
			continue
		case json.Delim('['):
			at = append(at, level{})
			continue
		case json.Delim('}'), json.Delim(']'):
			at = at[:top]
			top--
		}
		if top >= 0 {
			at[top].value = false
			at[top].index++
		}
	}
}

// nesting is the objects and arrays around a place of a body, the outermost first.
type nesting []level

type level struct {
	names map[string]bool // nil for an array
	name  string
	index int
	value bool // a value comes next, not a name
}

// place is the way to the value that comes next.
func (n nesting) place() (place []string) {
	for _, l := range n {
		place = append(place, cmp.Or(l.name, strconv.Itoa(l.index)))
	}
	return place
}

// holds reports whether a float64 holds a number, and nobody has to read thousands of digits to know.
func holds(number json.Number) bool {
	const longest = 64 // bytes; 24 are enough for every float64
	if len(number) > longest {
		return false
	}
	value, err := number.Float64()
	return err == nil && (value != 0 || !strings.ContainsAny(number.String(), "eE"))
}

// faultsOf returns the innermost errors of a validation, which say most.
func faultsOf(err error, fault func(place []string, detail string) problem.Fault) []problem.Fault {
	if err == nil {
		return nil
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return []problem.Fault{fault(nil, err.Error())}
	}
	var faults []problem.Fault
	var visit func(*jsonschema.ValidationError)
	visit = func(e *jsonschema.ValidationError) {
		if _, choice := e.ErrorKind.(*kind.OneOf); len(e.Causes) > 0 && !choice {
			for _, cause := range e.Causes {
				visit(cause)
			}
			return
		}
		faults = append(faults, leaf(e, fault)...)
	}
	visit(invalid)
	slices.SortFunc(faults, func(a, b problem.Fault) int {
		return cmp.Or(comparePointers(a.Pointer, b.Pointer), cmp.Compare(a.Detail, b.Detail))
	})
	return faults
}

func comparePointers(a, b *string) int {
	if a == nil || b == nil {
		return 0
	}
	return cmp.Compare(*a, *b)
}

var english = message.NewPrinter(language.English)

// leaf says in words what an error is. The library's own words are right for most, and hold no value of the body.
func leaf(e *jsonschema.ValidationError, fault func([]string, string) problem.Fault) []problem.Fault {
	place := e.InstanceLocation
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		var faults []problem.Fault
		for _, name := range k.Properties {
			faults = append(faults, fault(append(slices.Clone(place), name), "there is no such member"))
		}
		return faults
	case *kind.Required:
		var faults []problem.Fault
		for _, name := range k.Missing {
			faults = append(faults, fault(append(slices.Clone(place), name), "is missing"))
		}
		return faults
	case *kind.Pattern:
		return []problem.Fault{fault(place, "does not match "+k.Want)}
	case *kind.Format:
		return []problem.Fault{fault(place, "is no "+k.Want)}
	case *kind.OneOf:
		return []problem.Fault{fault(place, "has to be in one of the forms that the schema has: "+required(e))}
	case *kind.Not:
		return []problem.Fault{fault(place, "is what the schema excludes")}
	}
	return []problem.Fault{fault(place, e.ErrorKind.LocalizedString(english))}
}

// required names the members of which one has to be there.
func required(e *jsonschema.ValidationError) string {
	var names []string
	for _, cause := range e.Causes {
		if k, ok := cause.ErrorKind.(*kind.Required); ok {
			names = append(names, k.Missing...)
		}
	}
	if len(names) == 0 {
		return "of members that exclude each other, only one"
	}
	return "with " + strings.Join(names, ", or with ")
}

func pointer(place []string) string {
	var text strings.Builder
	for _, part := range place {
		text.WriteByte('/')
		text.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(part))
	}
	return text.String()
}
