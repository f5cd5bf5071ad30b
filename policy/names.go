package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxDepth is deeper than any policy nests.
const maxDepth = 16

// checkNames refuses what encoding/json would let pass in silence: an object that holds a name twice, of which
// the last would win; a field name in other letters than its own; and anything but blanks after the policy.
func checkNames(text []byte) error {
	walk := nameWalk{json.NewDecoder(bytes.NewReader(text))}
	walk.decoder.UseNumber()
	err := walk.value("policy", "", 0)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return decodeError(errors.New("the text ends too soon"))
	}
	if err != nil {
		return decodeError(err)
	}
	if _, err := walk.decoder.Token(); !errors.Is(err, io.EOF) {
		return decodeError(errors.New("something follows the policy"))
	}
	return nil
}

// nameWalk reads a text token by token.
type nameWalk struct {
	decoder *json.Decoder
}

// value reads one value, which path names in errors and field in the object that holds it.
func (w nameWalk) value(path, field string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s... nests deeper than any policy", path)
	}
	token, err := w.decoder.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		err = w.object(path, field, depth)
	case json.Delim('['):
		for err == nil && w.decoder.More() {
			err = w.value(path+"[]", field, depth+1)
		}
	default:
		return nil
	}
	if err == nil {
		_, err = w.decoder.Token() // the closing delimiter
	}
	return err
}

func (w nameWalk) object(path, field string, depth int) error {
	seen := make(map[string]bool)
	for w.decoder.More() {
		token, err := w.decoder.Token()
		if err != nil {
			return err
		}
		name, ok := token.(string)
		if !ok || !keyedByName(field) && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
			return fmt.Errorf("%s holds the unknown field %.64q", path, fmt.Sprint(token))
		}
		if seen[name] {
			return fmt.Errorf("%s holds %.64q twice", path, name)
		}
		seen[name] = true
		if err := w.value(path+"."+name, name, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// keyedByName reports whether the keys of the object in this field are names that operators choose.
func keyedByName(field string) bool {
	switch field {
	case "tiers", "tenants", "queue_limits", "priority_limits", "overflows", "queues", "priority_weights", "downstreams", "max_running":
		return true
	}
	return false
}
