package intake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// parse reads a line over what the flags say: a field that it does not name keeps the flag's value.
func parse(line []byte, flags Spec) (Spec, error) {
	if !utf8.Valid(line) {
		return Spec{}, errors.New("not UTF-8")
	}
	s := flags
	s.Headers = nil // Decoding would write into the map of the flags.
	var payload json.RawMessage
	var base64 []byte
	fields := map[string]any{
		"id": &s.ID, "tenant": &s.Tenant, "queue": &s.Queue, "type": &s.Type, "priority": &s.Priority, "downstream": &s.Downstream,
		"cost": &s.Cost, "deadline": &s.Deadline, "timeout": &s.Timeout, "delay": &s.Delay, "run_at": &s.RunAt, "max_attempts": &s.MaxAttempts, "headers": &s.Headers,
		"payload": &payload, "payload_base64": &base64,
	}
	seen, err := readObject(line, fields)
	if err != nil {
		return Spec{}, err
	}
	if !seen["headers"] {
		s.Headers = flags.Headers
	}
	switch {
	case seen["payload"] && seen["payload_base64"]:
		return Spec{}, errors.New("both payload and payload_base64")
	case seen["payload_base64"]:
		s.Payload = base64
	case seen["payload"]:
		s.Payload, err = payloadOf(payload)
	}
	return s, err
}

// payloadOf takes a string as its text and any other value as the JSON it is.
func payloadOf(value json.RawMessage) ([]byte, error) {
	if len(value) > 0 && value[0] == '"' {
		var text string
		err := json.Unmarshal(value, &text)
		return []byte(text), err
	}
	return value, nil
}

// readObject decodes one object into fields by their exact names, each once, and returns which it had. Package json
// would take any case of a name and the last of two.
func readObject(line []byte, fields map[string]any) (seen map[string]bool, err error) {
	decoder := json.NewDecoder(bytes.NewReader(line))
	first, err := decoder.Token()
	if err != nil {
		return nil, jsonError(err)
	}
	if first != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	seen = map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, jsonError(err)
		}
		name, _ := token.(string) // A key is one.
		field := fields[name]
		if field == nil {
			return nil, fmt.Errorf("unknown field %s: there are %s", quote(name), strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		if seen[name] {
			return nil, fmt.Errorf("field %q twice", name)
		}
		seen[name] = true
		if err := decoder.Decode(field); err != nil {
			return nil, fmt.Errorf("field %s: %w", name, jsonError(err))
		}
	}
	if _, err := decoder.Token(); err != nil { // The closing brace.
		return nil, jsonError(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something after the object")
	}
	return seen, nil
}

// jsonError says in the words of a user what package json says in those of Go.
func jsonError(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		kind, _, _ := strings.Cut(wrong.Value, " ") // "number 7": the value itself is nobody's business here.
		return fmt.Errorf("a %s where there should be a %s", kind, wrong.Type)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the object does not end")
	}
	return err
}
