package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"strconv"
	"strings"

	"github.com/headgate/headgate/admission"
)

// checkNames refuses what encoding/json would let pass in silence, an object that holds a name twice, of which the last would win, a
// field name in other letters than its own, and anything but blanks after the policy; and unknown fields and values of another kind,
// whose place it would not say.
func checkNames(text []byte) error { return checkNamesOf[policyJSON](text) }

// checkNamesOf is checkNames of a text of another kind.
func checkNamesOf[T any](text []byte) error {
	walk := nameWalk{json.NewDecoder(bytes.NewReader(text)), map[reflect.Type]fields{}}
	walk.decoder.UseNumber()
	err := walk.value("", reflect.TypeFor[T]())
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return decodeError(errors.New("the text ends too soon" + place(text, int64(len(text)))))
	}
	if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
		return decodeError(errors.New(wrong.Error() + place(text, walk.decoder.InputOffset())))
	}
	if err != nil {
		return decodeError(err)
	}
	end := walk.decoder.InputOffset()
	if _, err := walk.decoder.Token(); !errors.Is(err, io.EOF) {
		return decodeError(errors.New("something follows the policy" + place(text, end)))
	}
	return nil
}

// place says where in a text the token is that follows an offset, for people: its line and its column in bytes, from 1.
func place(text []byte, offset int64) string {
	rest := text[offset:]
	at := text[:len(text)-len(bytes.TrimLeft(rest, " \t\r\n"))]
	return fmt.Sprintf(", at line %d, column %d", bytes.Count(at, []byte("\n"))+1, len(at)-bytes.LastIndexByte(at, '\n'))
}

// nameWalk reads a text token by token, no deeper than a policy nests.
type nameWalk struct {
	decoder *json.Decoder
	// kinds are the fields of those structs that were met.
	kinds map[reflect.Type]fields
}

// fields are what may be in an object by its name, and the names in their order. Those of a map, whose keys are names that operators
// choose, are none.
type fields struct {
	of    map[string]reflect.Type
	names []string
}

// value reads one value, which path names in errors and which is to be decoded into a kind.
func (w nameWalk) value(path string, kind reflect.Type) error {
	if kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	token, err := w.decoder.Token()
	if err != nil {
		return err
	}
	if got := misfit(token, kind); got != "" {
		_, quoted := token.(string)
		return &admission.FieldError{Field: cmp.Or(path, "policy"), Value: got, Allowed: kindName(kind, quoted)}
	}
	switch token {
	case json.Delim('{'):
		err = w.object(path, kind)
	case json.Delim('['):
		for err == nil && w.decoder.More() {
			err = w.value(path+"[]", kind.Elem())
		}
	default:
		return nil
	}
	if err == nil {
		_, err = w.decoder.Token() // the closing delimiter
	}
	return err
}

func (w nameWalk) object(path string, kind reflect.Type) error {
	known, met := w.kinds[kind]
	if !met {
		known = fieldsOf(kind)
		w.kinds[kind] = known
	}
	seen := make(map[string]bool)
	for w.decoder.More() {
		token, err := w.decoder.Token()
		if err != nil {
			return err
		}
		name := fmt.Sprint(token)
		if seen[name] {
			return fmt.Errorf("%s holds %.64q twice", cmp.Or(path, "policy"), name)
		}
		seen[name] = true
		below := path + "." + shownName(name)
		if path == "" {
			below = shownName(name)
		}
		value := known.of[name]
		if kind.Kind() == reflect.Map {
			value = kind.Elem()
		}
		if value == nil {
			return &admission.FieldError{Field: below, Value: "(unknown)", Allowed: "one of " + strings.Join(known.names, ", ")}
		}
		if err := w.value(below, value); err != nil {
			return err
		}
	}
	return nil
}

// misfit returns a value that begins with a token, or what it is, if it cannot be decoded into a kind; null can be anything.
func misfit(token json.Token, kind reflect.Type) string {
	if token == nil {
		return ""
	}
	var got string
	fits := false
	switch token := token.(type) {
	case json.Delim:
		got, fits = "JSON object", kind.Kind() == reflect.Struct || kind.Kind() == reflect.Map
		if token == '[' {
			got, fits = "JSON array", kind.Kind() == reflect.Slice
		}
	case json.Number:
		got = shownName(token.String())
		switch kind.Kind() {
		case reflect.Int, reflect.Int64:
			_, err := token.Int64()
			fits = err == nil
		case reflect.Float64:
			_, err := token.Float64()
			fits = err == nil
		default: // It fits nothing else.
		}
	case string:
		got, fits = fmt.Sprintf("%.64q", token), kind.Kind() == reflect.String
	case bool:
		got, fits = strconv.FormatBool(token), kind.Kind() == reflect.Bool
	}
	if fits {
		return ""
	}
	return got
}

func fieldsOf(kind reflect.Type) fields {
	f := fields{of: map[string]reflect.Type{}}
	if kind.Kind() != reflect.Struct {
		return f
	}
	for field := range kind.Fields() {
		if field.Anonymous {
			inner := fieldsOf(field.Type)
			maps.Copy(f.of, inner.of)
			f.names = append(f.names, inner.names...)
			continue
		}
		f.of[nameOf(field)] = field.Type
		f.names = append(f.names, nameOf(field))
	}
	return f
}

func nameOf(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

// shownName makes a name from outside fit for a path in an error.
func shownName(name string) string { return strings.Trim(fmt.Sprintf("%.64q", name), `"`) }
