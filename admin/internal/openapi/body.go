package openapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/admin/internal/problem"
)

const (
	// MaxDepth is how deep the objects and arrays of a body may be nested, those of a payload too.
	MaxDepth = 32
	// mostEntries bounds lists and maps for which the description has no bound.
	mostEntries = 1000
)

// readBody reads a body as far as the schema describes it, which is all that is validated, and takes memory for no more: what is
// free, such as a payload, is passed on as it came, so only its nesting is looked at. It reports the first thing for which reading on
// would be worth nothing: a list or an object with more in it than is allowed, too much nesting, a member that an object has twice, of
// which readers would not take the same, and a number that no float64 holds, for which the exact arithmetic of the schema takes tens
// of milliseconds.
func (o *Operation) readBody(body []byte) (any, *problem.Fault) {
	r := &bodyReader{decoder: jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))}
	value := r.value(o.shape)
	if r.fault == nil {
		if _, err := r.decoder.ReadToken(); !errors.Is(err, io.EOF) {
			r.broken = true // There is more behind the value.
		}
	}
	if r.broken {
		fault := problem.At("", "the body is not one JSON value: "+syntaxError(body))
		return nil, &fault
	}
	return value, r.fault
}

func syntaxError(body []byte) string {
	var whatever json.RawMessage
	return fmt.Sprint(json.Unmarshal(body, &whatever))
}

// bodyReader is a walk through a body. With a fault it is over. broken says that the body is no JSON.
type bodyReader struct {
	decoder *jsontext.Decoder
	place   []step
	fault   *problem.Fault
	broken  bool
}

// step is one part of the way to a place: the name of a member, or the index in a list.
type step struct {
	name  string
	index int
}

// fail ends the walk.
func (r *bodyReader) fail(detail string) {
	if r.fault != nil {
		return
	}
	names := make([]string, len(r.place))
	for i, s := range r.place {
		names[i] = s.name
		if s.index >= 0 {
			names[i] = strconv.Itoa(s.index)
		}
	}
	fault := problem.At(pointer(names), detail)
	r.fault = &fault
}

// unreadable ends the walk where the body is no JSON.
func (r *bodyReader) unreadable(err error) {
	r.broken = true
	r.fail("cannot be read: " + err.Error())
}

// token returns the next one, the zero Token where there is none, which ends the walk.
func (r *bodyReader) token() jsontext.Token {
	token, err := r.decoder.ReadToken()
	if err != nil {
		r.unreadable(err)
		return jsontext.Token{}
	}
	return token
}

// text returns the next value as it came, until the next is read; nil where there is none, which ends the walk.
func (r *bodyReader) text() jsontext.Value {
	text, err := r.decoder.ReadValue()
	if err != nil {
		r.unreadable(err)
	}
	return text
}

// value reads a value as its shape has it.
func (r *bodyReader) value(s *shape) any {
	if s == nil {
		r.free()
		return nil
	}
	kind := r.decoder.PeekKind()
	nests := kind == jsontext.KindBeginObject || kind == jsontext.KindBeginArray
	if nests && len(r.place) >= MaxDepth {
		r.fail(fmt.Sprintf("is nested too deep; allowed are %d levels", MaxDepth))
		return nil
	}
	switch kind {
	case jsontext.KindBeginObject:
		return r.object(s)
	case jsontext.KindBeginArray:
		return r.list(s)
	case jsontext.KindNumber:
		number := json.Number(r.text())
		if !holds(number) {
			r.fail("is no number that a float64 holds")
		}
		return number
	default: // It is a token.
	}
	token := r.token() // What is no JSON has told so by its kind, or tells so here.
	switch token.Kind() {
	case jsontext.KindString:
		return token.String()
	case jsontext.KindTrue, jsontext.KindFalse:
		return token.Bool()
	default:
		return nil
	}
}

// free passes over a value that has no shape: a megabyte of tokens would take a tenth of a second.
func (r *bodyReader) free() {
	if depth(r.text())+len(r.place) > MaxDepth {
		r.fail(fmt.Sprintf("is nested too deep; allowed are %d levels", MaxDepth-len(r.place)))
	}
}

// depth is how deep the objects and arrays of a valid JSON text are nested.
func depth(text []byte) int {
	deepest, now := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			now++
			deepest = max(deepest, now)
		case '}', ']':
			now--
		}
	}
	return deepest
}

func (r *bodyReader) object(s *shape) map[string]any {
	described, seen := map[string]any{}, map[string]bool{}
	r.token()
	for r.fault == nil && r.decoder.PeekKind() != jsontext.KindEndObject {
		token := r.token()
		if r.fault != nil {
			return described
		}
		name := token.String()
		r.place = append(r.place, step{name, -1})
		if seen[name] {
			r.fail("is there several times; allowed is once")
			return described
		}
		seen[name] = true
		inner, known := s.member(name)
		value := r.value(inner)
		r.place = r.place[:len(r.place)-1]
		if known {
			described[name] = value
		}
		if s.mostMembers > 0 && len(seen) > s.mostMembers {
			r.fail(fmt.Sprintf("has more members than the %d that are looked at", s.mostMembers))
		}
	}
	r.token()
	return described
}

func (r *bodyReader) list(s *shape) []any {
	described := []any{}
	r.token()
	for n := 0; r.fault == nil && r.decoder.PeekKind() != jsontext.KindEndArray; n++ {
		if s.items != nil && n == s.mostItems {
			r.fail(fmt.Sprintf("maxItems: got more than %d, want %d", n, n))
			return described
		}
		r.place = append(r.place, step{index: n})
		value := r.value(s.items)
		r.place = r.place[:len(r.place)-1]
		if s.items != nil {
			described = append(described, value)
		}
	}
	r.token()
	return described
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
