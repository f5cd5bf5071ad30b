package policy

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

// apply makes the changes of a Diff to the JSON of a policy, and drops objects that are left empty.
func apply(t *rapid.T, to map[string]any, changes []Change) {
	for _, c := range changes {
		parts := strings.Split(c.Path[1:], "/")
		at := to
		for _, part := range parts[:len(parts)-1] {
			part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
			inner, ok := at[part].(map[string]any)
			if !ok {
				inner = map[string]any{}
				at[part] = inner
			}
			at = inner
		}
		last := strings.NewReplacer("~1", "/", "~0", "~").Replace(parts[len(parts)-1])
		have, err := json.Marshal(at[last])
		if err != nil {
			t.Fatal(err)
		}
		if c.Before == nil != (at[last] == nil) || c.Before != nil && string(have) != string(c.Before) {
			t.Fatalf("%s was %s, and the change says %s", c.Path, have, c.Before)
		}
		if c.After == nil {
			delete(at, last)
			continue
		}
		decoder := json.NewDecoder(bytes.NewReader(c.After))
		decoder.UseNumber()
		var value any
		if err := decoder.Decode(&value); err != nil {
			t.Fatal(err)
		}
		at[last] = value
	}
	prune(to)
}

func prune(at map[string]any) {
	for name, value := range at {
		if inner, ok := value.(map[string]any); ok {
			if prune(inner); len(inner) == 0 {
				delete(at, name)
			}
		}
	}
}

// TestDiffIsWhatToChange: made to the one policy, the changes give the other, and nothing differs from itself.
func TestDiffIsWhatToChange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		before, after := drawPolicy(t), drawPolicy(t)
		same, err := Diff(before, before)
		if err != nil || len(same) > 0 {
			t.Fatalf("from itself it differs in %+v, %v", same, err)
		}
		changes, err := Diff(before, after)
		if err != nil {
			t.Fatal(err)
		}
		old, err := tree(before)
		if err != nil {
			t.Fatal(err)
		}
		want, err := tree(after)
		if err != nil {
			t.Fatal(err)
		}
		apply(t, old, changes)
		prune(want)
		if !reflect.DeepEqual(old, want) {
			t.Fatalf("%+v lead to %v, not %v", changes, old, want)
		}
	})
}

func TestDiffNamesPlaces(t *testing.T) {
	t.Parallel()
	before := Default()
	before.Tenants = map[string]Tenant{"a/b": {Limit: new(admission.PerSecond(10).WithBurst(5))}}
	after := Default()
	after.Version = 9
	after.Global = admission.PerSecond(1000).WithBurst(100)
	after.Tiers["basic"] = Tier{Limit: admission.PerSecond(100).WithBurst(30), Weights: after.Tiers["basic"].Weights}
	changes, err := Diff(before, after)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changes {
		got = append(got, c.Kind()+" "+c.Path+" "+string(c.Before)+">"+string(c.After))
	}
	want := []string{
		"added /global/burst >100", `added /global/per >"1s"`, "added /global/tokens >1000", "removed /tenants/a~1b/limit/burst 5>",
		`removed /tenants/a~1b/limit/per "1s">`, "removed /tenants/a~1b/limit/tokens 10>",
		"changed /tiers/basic/limit/burst 25>30",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if _, err := Diff(before, Policy{Tiers: map[string]Tier{}}); err == nil {
		t.Error("a policy without tiers was compared")
	}
}

// TestWithChangesOnePlace: what is put at a path is read there, nothing else differs, and taken away it is gone.
func TestWithChangesOnePlace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		path := rapid.SampledFrom([][]string{
			{"global"}, {"tenants", "acme", "limit"}, {"tenants", "nobody", "limit"}, {"queue_limits", "acme:mail"}, {"priority_limits", "bolt:sms:low"},
		}).Draw(t, "path")
		if path[0] == "global" { // Of which a part may be kept: not of none.
			p.GlobalReserved, p.Bypass = nil, nil
		}
		limit := json.RawMessage(`{"tokens":7,"per":"2s","burst":9}`)
		with, err := p.With(limit, path...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := with.At(path...)
		if err != nil || string(got) != string(limit) {
			t.Fatalf("at %v is %s, %v", path, got, err)
		}
		changes, err := Diff(p, with)
		if err != nil {
			t.Fatal(err)
		}
		below := "/" + strings.Join(path, "/")
		for _, c := range changes {
			if !strings.HasPrefix(c.Path, below+"/") && c.Path != "/tenants/"+path[1%len(path)]+"/tier" {
				t.Fatalf("%s changed too", c.Path)
			}
		}
		without, err := with.With(nil, path...)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := without.At(path...); err != nil || got != nil {
			t.Fatalf("at %v is %s still, %v", path, got, err)
		}
	})
}

func TestWithRefusesWhatIsNoPolicy(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		`{"tokens":-1,"per":"1s","burst":9}`:              "-1",
		`{"tokens":1,"tokens":2}`:                         "twice",
		`{"tokens":`:                                      "policy",
		`{"colour":1}`:                                    "colour",
		`{"per":"` + strings.Repeat("x", MaxBytes) + `"}`: "bytes",
		`{"tokens":1,"per":"1s","burst":1},"x":{}{`:       "policy",
	} {
		if _, err := Default().With(json.RawMessage(value), "global"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s gave %v, want %q", value, err, want)
		}
	}
}
