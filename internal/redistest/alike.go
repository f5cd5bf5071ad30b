package redistest

import (
	"reflect"
	"time"
)

// Reply is what a method of a store returned: its values, and the text of its error.
type Reply struct {
	Values []any
	Err    string
}

// Replied makes a Reply of what a method returned, an error last.
func Replied(all ...any) Reply {
	r := Reply{Values: all[:len(all)-1]}
	if err, failed := all[len(all)-1].(error); failed {
		r.Err = err.Error()
	}
	return r
}

// Scrubbed returns a copy of what a store returned without what differs from store to store: tokens of leases, which are never equal. Of
// errors there is the text, of times the moment.
func Scrubbed(value any) any {
	if value == nil {
		return nil
	}
	return scrub(reflect.ValueOf(value)).Interface()
}

var timeType = reflect.TypeFor[time.Time]()

func scrub(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() { //nolint:exhaustive // the others hold nothing
	case reflect.Interface:
		if !v.IsNil() {
			if err, ok := reflect.TypeAssert[error](v); ok {
				out.Set(reflect.ValueOf(failure(err.Error())))
				return out
			}
			out.Set(scrub(v.Elem()))
		}
	case reflect.Slice:
		if v.IsNil() || v.Type().Elem().Kind() == reflect.Uint8 {
			return out
		}
		out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			out.Index(i).Set(scrub(v.Index(i)))
		}
	case reflect.Struct:
		scrubStruct(v, out)
	}
	return out
}

func scrubStruct(v, out reflect.Value) {
	if v.Type() == timeType {
		if at := v.Interface().(time.Time); !at.IsZero() { //nolint:forcetypeassert // It is of that type.
			out.Set(reflect.ValueOf(at.UTC().Round(0)))
		}
		return
	}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		switch {
		case !field.IsExported():
		case v.Type().Name() == "Lease" && field.Name == "Token":
			out.Field(i).SetString("")
		default:
			out.Field(i).Set(scrub(v.Field(i)))
		}
	}
}

// failure is an error of which only the text counts.
type failure string

func (f failure) Error() string { return string(f) }
