package openapi

import (
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
// required. It allocates a few megabytes and 100 bytes for each of the body's at most, however many faults there are.
func (o *Operation) CheckBody(body []byte) []problem.Fault {
	if len(body) == 0 {
		if o.bodyNeeded {
			return []problem.Fault{problem.At("", "the body is missing")}
		}
		return nil
	}
	value, fault := o.readBody(body)
	if fault != nil {
		return []problem.Fault{*fault}
	}
	return faultsOf(o.body.Validate(value), func(place []string, detail string) problem.Fault {
		if detail == noMember {
			detail += o.instead(place)
		}
		return problem.At(pointer(place), detail)
	})
}

// noMember is the fault of a member that the schema does not have.
const noMember = "there is no such member"

// instead says in place of which members one is that is not allowed, and whether it is to be a parameter.
func (o *Operation) instead(place []string) string {
	within, name := place[:len(place)-1], place[len(place)-1]
	text := "; allowed is " + cmp.Or(o.shape.memberNames(within), "none")
	if _, ok := o.parameters[name]; ok && len(within) == 0 {
		text += "; " + name + " is a parameter of the query"
	}
	return text
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

// mostFaults is how many faults of a request are told.
const mostFaults = problem.MaxFaults

// faultsOf returns the innermost errors of a validation, which say most, up to mostFaults of them: each costs a kilobyte or more.
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
		if len(faults) >= mostFaults {
			return
		}
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
		for _, name := range k.Properties[:min(len(k.Properties), mostFaults)] {
			faults = append(faults, fault(append(slices.Clone(place), name), noMember))
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
