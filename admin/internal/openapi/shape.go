package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// shape is what of a schema bounds how a body is read. The nil shape is that of a value that is free, or not allowed at all.
type shape struct {
	// members are those that the schema names; others is the shape of the rest, and closed that there may be no rest.
	members map[string]*shape
	others  *shape
	closed  bool
	// mostMembers bounds all of them where each may be a fault or has a shape; zero is no bound.
	mostMembers int
	// items is the shape of what is in a list, nil if it is none; mostItems is how many there may be.
	items     *shape
	mostItems int
}

// member returns the shape of a member, and whether the schema has a say in it.
func (s *shape) member(name string) (inner *shape, described bool) {
	if inner, ok := s.members[name]; ok {
		return inner, true
	}
	return s.others, s.others != nil || s.closed
}

// mostNames is how many members are named where another one is not allowed.
const mostNames = 24

// memberNames names the members that a schema has for what is at a place, in order; "" for none.
func (s *shape) memberNames(place []string) string {
	for _, step := range place {
		if s == nil {
			return ""
		}
		if s.items != nil {
			s = s.items
			continue
		}
		s, _ = s.member(step)
	}
	if s == nil {
		return ""
	}
	names := slices.Sorted(maps.Keys(s.members))
	if more := len(names) - mostNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNames], ", "), more)
	}
	return strings.Join(names, ", ")
}

// shape returns that of the schema at a place of the description, nil if it says nothing of the value.
func (r *reader) shape(place []string) *shape {
	node, where := r.follow(place)
	if said := members(node); len(said) == 0 || len(said) == 1 && said["description"] != nil {
		return nil
	}
	s := &shape{members: map[string]*shape{}}
	for name := range members(at(node, "properties")) {
		s.members[name] = r.shape(append(slices.Clip(where), "properties", name))
	}
	switch rest := at(node, "additionalProperties").(type) {
	case bool:
		s.closed = !rest
	case map[string]any:
		s.others = r.shape(append(slices.Clip(where), "additionalProperties"))
	}
	switch {
	case s.closed:
		s.mostMembers = len(s.members) + mostFaults
	case s.others != nil:
		s.mostMembers = bound(node, "maxProperties")
	}
	if at(node, "items") != nil {
		s.items, s.mostItems = r.shape(append(slices.Clip(where), "items")), bound(node, "maxItems")
	}
	return s
}

// bound reads a bound of a schema.
func bound(node any, name string) int {
	if number, ok := at(node, name).(json.Number); ok {
		if n, err := number.Int64(); err == nil {
			return int(n)
		}
	}
	return mostEntries
}
