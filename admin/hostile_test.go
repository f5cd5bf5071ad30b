package admin_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/store"
)

// stranger draws calls of operations as the description has them, but for a part of each that is of another kind or size, or missing.
type stranger struct {
	plant *plant
	rt    *rapid.T
	// worker is the name of a session.
	worker string
}

var (
	// usual are texts that mean something to the plant, by the name of what they are for.
	usual = map[string][]string{
		"tenant": {"acme", "zeta"}, "id": {"one", "d1", "two"}, "queue": {"mail"}, "name": {"mail", "ship", "acme"}, "type": {"welcome"}, "downstream": {"ship"},
		"scope": {"global", "acme", "acme:mail", "acme:mail:high"}, "tier": {"standard", "basic", "gold"}, "kind": {"scope", "downstream"}, "token": {"1-1"},
		"for": {"1m"}, "delay": {"1m"}, "lease": {"10s"}, "wait": {"1ms"}, "per": {"1s", "1h"}, "reason": {"discarded", "to try"}, "confirm": {"mail"},
		"priority": {"high", "low"}, "before": {"2031-01-01T00:00:00Z"}, "run_at": {"2031-01-01T00:00:00Z"}, "version": {"1", "2"}, "limit": {"2"}, "key": {"k"},
	}
	// unusual are texts for which nothing is made.
	unusual = []string{
		"", " ", "-1", "99999999999999999999", "1e400", "NaN", "a:b:c:d:e", "../..", "%00", "\x00", "\ufffd", "{0}", "*", "ü", "1h", "-1s", "9999999h", "yesterday",
		"0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "null", "[]", "{}", "'; drop table", strings.Repeat("a", 129), strings.Repeat("9", 5000), "18446744073709551615-18446744073709551615",
	}
)

func (s *stranger) oddly() bool { return rapid.IntRange(0, 11).Draw(s.rt, "oddly") == 0 }

func (s *stranger) text(name string) string {
	switch texts := usual[name]; {
	case s.oddly(), name != "worker" && texts == nil:
		return rapid.SampledFrom(unusual).Draw(s.rt, name)
	case name == "worker":
		return s.worker
	default:
		return rapid.SampledFrom(texts).Draw(s.rt, name)
	}
}

// value draws what a schema describes, or something else.
func (s *stranger) value(name string, ref *openapi3.SchemaRef, depth int) any {
	if ref == nil || ref.Value == nil || depth > 6 || s.oddly() {
		return rapid.SampledFrom([]any{nil, true, -1, 1 << 53, 1e300, 0.5, s.text(name), []any{}, []any{s.text(name)}, map[string]any{}, map[string]any{s.text(name): s.text(name)}}).Draw(s.rt, "anything")
	}
	schema := ref.Value
	if all := slices.Concat(schema.OneOf, schema.AnyOf, schema.AllOf); len(all) > 0 {
		return s.value(name, rapid.SampledFrom(all).Draw(s.rt, "schema"), depth+1)
	}
	switch {
	case len(schema.Enum) > 0:
		return rapid.SampledFrom(schema.Enum).Draw(s.rt, "enum")
	case schema.Type.Includes("object"):
		object := map[string]any{}
		for _, field := range slices.Sorted(maps.Keys(schema.Properties)) {
			if slices.Contains(schema.Required, field) != s.oddly() {
				object[field] = s.value(field, schema.Properties[field], depth+1)
			}
		}
		return object
	case schema.Type.Includes("array"):
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(s.rt, "items") {
			list = append(list, s.value(name, schema.Items, depth+1))
		}
		return list
	case schema.Type.Includes("integer"), schema.Type.Includes("number"):
		return rapid.SampledFrom([]float64{0, 1, 2, 3, 10, 64, 65, 1000, -1, 1e6, 1e18, 0.5}).Draw(s.rt, "number")
	case schema.Type.Includes("boolean"):
		return rapid.Bool().Draw(s.rt, "bool")
	}
	return s.text(name)
}

// ask draws a call of an operation.
func (s *stranger) ask() ask {
	a := ask{op: rapid.SampledFrom(s.plant.operations()).Draw(s.rt, "operation"), path: map[string]string{}, header: http.Header{}}
	method, path, _ := strings.Cut(a.op, " ")
	item := s.plant.spec.Paths.Value(path)
	operation := item.GetOperation(method)
	query := url.Values{}
	for _, parameter := range slices.Concat(item.Parameters, operation.Parameters) {
		p := parameter.Value
		switch {
		case p.In == openapi3.ParameterInPath:
			for a.path[p.Name] == "" || a.path[p.Name] == "../.." { // These are other paths.
				a.path[p.Name] = s.text(p.Name)
			}
		case p.In == openapi3.ParameterInQuery && rapid.Bool().Draw(s.rt, p.Name):
			query.Add(p.Name, fmt.Sprint(s.value(p.Name, p.Schema, 0)))
		case p.In == openapi3.ParameterInHeader && rapid.Bool().Draw(s.rt, p.Name):
			a.header.Set(p.Name, s.text(p.Name))
		}
	}
	a.query = query.Encode()
	if operation.RequestBody != nil {
		if content := operation.RequestBody.Value.Content.Get("application/json"); content != nil {
			text, err := json.Marshal(s.value("", content.Schema, 0))
			must(s.plant.tb, err)
			a.body = string(text)
		}
	}
	return a
}

// TestNoCallIsAFailure: whatever is asked for, the answer is one that the description has, and never that something broke. That
// Redis was too late, on a busy machine, is none.
func TestNoCallIsAFailure(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.enqueue("acme", "d1")
	p.work(t.Context(), 1, store.Kill)
	p.enqueue("acme", "one")
	session := p.want(http.StatusCreated, "operator", ask{op: "POST /api/v1/workers", body: `{"queues":[{"queue":"mail"}],"slots":4}`}).object(t)
	worker, _ := session["worker"].(string)
	rapid.Check(t, func(rt *rapid.T) {
		s := &stranger{p, rt, worker}
		for range 5 {
			a := s.ask()
			who := rapid.SampledFrom([]string{"admin", "acme-admin", "viewer"}).Draw(rt, "who")
			got, err := p.answer(who, a)
			if err != nil || got.status >= http.StatusInternalServerError && got.status != http.StatusServiceUnavailable {
				rt.Fatalf("%+v as %s: %d, %v\n%s", a, who, got.status, err, got.body)
			}
		}
	})
}
