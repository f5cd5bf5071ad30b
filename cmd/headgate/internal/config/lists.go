package config

import (
	"encoding/json"
	"strconv"
	"strings"
)

// list is a list of elements that are written as texts.
type list[E any] struct {
	allowed string
	// example is a list as a file has it.
	example string
	at      func(*Config) *[]E
	parse   func(string) (E, bool)
	text    func(E) string
	// id is what no two elements share; nil if they may be alike.
	id   func(E) string
	most int
	// array is set if show writes a JSON array, because an element may hold a comma.
	array bool
}

func (l list[E]) Type() string    { return "list" }
func (l list[E]) Allowed() string { return l.allowed }
func (l list[E]) Example() string { return l.example }

// form says how a value is to be written that is no list, and nothing of one that is: its elements are at fault.
func (l list[E]) form(raw any, text bool) string {
	if _, ok := texts(raw, text); ok {
		return ""
	}
	if text {
		return "a JSON array such as " + l.example + ", or its elements with commas between them: "
	}
	if line, ok := raw.(string); ok && !l.array && line != "" {
		parts := strings.Split(line, ",")
		for i, part := range parts {
			parts[i] = strings.TrimSpace(part)
		}
		return "a list, here " + quote(parts) + ": "
	}
	return "a list of texts, such as " + l.example + ": "
}

// read reports every bad element.
func (l list[E]) read(to *Config, raw any, text bool) (bad []string) {
	parts, ok := texts(raw, text)
	if !ok || len(parts) > l.most {
		return []string{quote(raw)}
	}
	seen := map[string]bool{}
	all := make([]E, 0, len(parts))
	for _, part := range parts {
		element, ok := l.parse(part)
		if ok && l.id != nil {
			ok = !seen[l.id(element)]
			seen[l.id(element)] = true
		}
		if !ok {
			bad = append(bad, strconv.Quote(part))
		}
		all = append(all, element)
	}
	if len(bad) == 0 {
		*l.at(to) = all
	}
	return bad
}

func (l list[E]) strings(from *Config) []string {
	all := *l.at(from)
	parts := make([]string, len(all))
	for i, element := range all {
		parts[i] = l.text(element)
	}
	return parts
}

func (l list[E]) show(from *Config) string {
	parts := l.strings(from)
	if l.array && len(parts) > 0 {
		return quoteJSON(parts)
	}
	return strings.Join(parts, ",")
}

func (l list[E]) plain(from *Config) any { return l.strings(from) }

// texts reads a list of texts: what a file has as such, or text, a JSON array or parts with commas between them.
func texts(raw any, isText bool) ([]string, bool) {
	switch list := raw.(type) {
	case []string:
		return list, true
	case string:
		if strings.HasPrefix(list, "[") {
			var parts []string
			err := json.Unmarshal([]byte(list), &parts)
			return parts, isText && err == nil
		}
		return strings.Split(list, ","), isText
	case []any:
		parts := make([]string, len(list))
		for i, part := range list {
			var ok bool
			if parts[i], ok = part.(string); !ok {
				return nil, false
			}
		}
		return parts, true
	}
	return nil, false
}
