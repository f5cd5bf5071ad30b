package openapi_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/admin/internal/openapi"
)

var update = flag.Bool("update", false, "write the types of clients/typescript anew")

// clients is the directory of the clients in other languages.
var clients = filepath.Join("..", "..", "..", "clients")

// wrapped are the operations of producers and workers, with how each client's source calls them.
var wrapped = map[string]struct{ python, typescript string }{
	"enqueueJob":        {`"POST", "/api/v1/jobs"`, `"POST", "/api/v1/jobs"`},
	"enqueueJobs":       {`"POST", "/api/v1/jobs/batch"`, `"POST", "/api/v1/jobs/batch"`},
	"checkLimits":       {`"POST", "/api/v1/rate-limit/check"`, `"POST", "/api/v1/rate-limit/check"`},
	"reserveTokens":     {`"POST", "/api/v1/rate-limit/reserve"`, `"POST", "/api/v1/rate-limit/reserve"`},
	"commitReservation": {`"POST", "/api/v1/rate-limit/commit"`, `"POST", "/api/v1/rate-limit/commit"`},
	"cancelReservation": {`"POST", "/api/v1/rate-limit/cancel"`, `"POST", "/api/v1/rate-limit/cancel"`},
	"acquireSemaphore":  {`_semaphore(semaphore, "acquire")`, `permits(semaphore, "acquire")`},
	"extendSemaphore":   {`_semaphore(semaphore, "extend")`, `permits(semaphore, "extend")`},
	"releaseSemaphore":  {`_semaphore(semaphore, "release")`, `permits(semaphore, "release")`},
	"registerWorker":    {`"POST", "/api/v1/workers"`, `"POST", "/api/v1/workers"`},
	"deregisterWorker":  {`"DELETE", _session(worker)`, `"DELETE", session(worker)`},
	"leaseJobs":         {`_session(worker, "leases")`, `session(worker, "leases")`},
	"extendLease":       {`_session(worker, "extend")`, `session(worker, "extend")`},
	"completeJob":       {`_session(worker, "complete")`, `session(worker, "complete")`},
	"failJob":           {`_session(worker, "fail")`, `session(worker, "fail")`},
	"releaseJob":        {`_session(worker, "release")`, `session(worker, "release")`},
}

// leftOut are the other operations on jobs, limits and workers, and why clients have none of them.
var leftOut = map[string]string{
	"listJobs": "people look", "getJob": "people look", "cancelJob": "an operator's act", "getPayload": "an operator's sight", "getResult": "an operator's sight",
	"getLimitStatus": "people look", "getLimitMetrics": "people look", "listLimitMetrics": "people look", "resetLimit": "an admin's act",
	"listWorkers": "people look",
}

type object = map[string]any

// describedOperation is one operation, with its id, its role and all of it.
type describedOperation struct {
	path, method string
	node         object
}

func described(t *testing.T) (operations map[string]describedOperation, schemas object) {
	t.Helper()
	document, err := openapi.Load()
	if err != nil {
		t.Fatal(err)
	}
	var all object
	if err := json.Unmarshal(document.JSON(), &all); err != nil {
		t.Fatal(err)
	}
	operations = map[string]describedOperation{}
	for path, item := range all["paths"].(object) {
		for method, node := range item.(object) {
			if node, ok := node.(object); ok && node["operationId"] != nil {
				operations[node["operationId"].(string)] = describedOperation{path, strings.ToUpper(method), node}
			}
		}
	}
	return operations, all["components"].(object)["schemas"].(object)
}

// source is all that a client consists of.
func source(t *testing.T, pattern string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(clients, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %v", pattern, err)
	}
	var all strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// TestClientsWrapWhatProducersAndWorkersMayCall: each operation for these roles, and each on jobs, limits and workers is wrapped or left out.
func TestClientsWrapWhatProducersAndWorkersMayCall(t *testing.T) {
	t.Parallel()
	operations, _ := described(t)
	python, script := source(t, "python/headgate/*.py"), source(t, "typescript/src/*.js")
	concerned := regexp.MustCompile(`^/api/v1/(jobs|workers|rate-limit/(check|reserve|commit|cancel|status|metrics|reset))(/|$)`)
	for id, o := range operations {
		how, ok := wrapped[id]
		role := o.node["x-headgate-role"]
		if mayThey := role == "producer" || role == "worker"; mayThey != ok {
			t.Errorf("%s is for the role %v, and wrapped: %t", id, role, ok)
		}
		if ok && (!strings.Contains(python, how.python) || !strings.Contains(script, how.typescript)) {
			t.Errorf("%s: the client in Python calls it: %t, that in TypeScript: %t", id, strings.Contains(python, how.python), strings.Contains(script, how.typescript))
		}
		if concerned.MatchString(o.path) && !ok && leftOut[id] == "" {
			t.Errorf("%s (%s %s) is neither wrapped nor left out with a reason", id, o.method, o.path)
		}
	}
	for _, id := range slices.Concat(slices.Collect(maps.Keys(wrapped)), slices.Collect(maps.Keys(leftOut))) {
		if operations[id].node == nil {
			t.Errorf("there is no operation %s", id)
		}
	}
}

// TestPythonsTypesAreTheDescriptions: each of them has the members of its schema, and those that the schema requires in its base.
func TestPythonsTypesAreTheDescriptions(t *testing.T) {
	t.Parallel()
	_, schemas := described(t)
	class := regexp.MustCompile(`(?m)^class (\w+)\((\w+)(?:, total=False)?\):\n((?:    \w+: .+\n)+)`)
	fields := map[string][]string{}
	text := source(t, "python/headgate/types.py")
	for _, found := range class.FindAllStringSubmatch(text, -1) {
		name, base := found[1], found[2]
		fields[name] = slices.Clone(fields[base])
		for line := range strings.Lines(found[3]) {
			field, _, _ := strings.Cut(strings.TrimSpace(line), ":")
			fields[name] = append(fields[name], field)
		}
		slices.Sort(fields[name])
		public := strings.TrimPrefix(name, "_")
		schema, ok := schemas[public].(object)
		if !ok {
			t.Errorf("no schema is called %s", public)
			continue
		}
		want := slices.Sorted(maps.Keys(schema["properties"].(object)))
		if public != name || !strings.Contains(text, "class "+name+"(_"+name+",") { // All that is required, and no more.
			required, _ := schema["required"].([]any)
			names := make([]string, 0, len(required))
			for _, one := range required {
				names = append(names, one.(string))
			}
			if slices.Sort(names); !slices.Equal(fields[name], names) {
				t.Errorf("%s has %v, and of the schema are required %v", name, fields[name], names)
			}
		}
		if public == name && !slices.Equal(fields[name], want) {
			t.Errorf("%s has %v, the schema %v", name, fields[name], want)
		}
	}
	for _, name := range []string{"NewJob", "Verdict", "BatchResults", "BatchResult", "Decision", "Session", "Leases", "Lease", "Extended", "Ended", "Reservation", "Settled"} {
		if fields[name] == nil {
			t.Errorf("there is no %s", name)
		}
	}
	python := source(t, "python/headgate/client.py")
	for _, name := range []string{"NewJob", "Completion", "Failure", "Release", "NewSession", "NewLeases", "Extension", "Check", "Reserve", "Commit", "CancelReservation"} { // What is sent.
		for member := range schemas[name].(object)["properties"].(object) {
			if !strings.Contains(python, `"`+member+`"`) {
				t.Errorf("the client never sends %s of %s", member, name)
			}
		}
	}
}

// TestTypesOfTheTypeScriptClient: they are generated from the description.
func TestTypesOfTheTypeScriptClient(t *testing.T) {
	t.Parallel()
	operations, schemas := described(t)
	g := generator{schemas: schemas, done: map[string]string{}}
	for id := range wrapped {
		g.visit(operations[id].node)
	}
	g.name("Problem")
	var want strings.Builder
	want.WriteString("// Generated from the OpenAPI description: go test ./admin/internal/openapi -run TypeScript -update\n")
	for _, name := range slices.Sorted(maps.Keys(g.done)) {
		fmt.Fprintf(&want, "\nexport type %s = %s;\n", name, g.done[name])
	}
	file := filepath.Join(clients, "typescript", "src", "types.d.ts")
	if *update {
		if err := os.WriteFile(file, []byte(want.String()), 0o644); err != nil { //nolint:gosec // It is a source.
			t.Fatal(err)
		}
	}
	if got := source(t, "typescript/src/types.d.ts"); got != want.String() {
		t.Error("clients/typescript/src/types.d.ts is not what the description says: go test ./admin/internal/openapi -run TypeScript -update")
	}
}

// TestTheDeclarationsOfTheTypeScriptClientAreItsSource: the classes, and the methods of each.
func TestTheDeclarationsOfTheTypeScriptClientAreItsSource(t *testing.T) {
	t.Parallel()
	class := regexp.MustCompile(`(?ms)^export (?:declare )?class (\w+)(?: extends (\w+))? \{(?:\}|\n(.*?)^\})$`)
	method := regexp.MustCompile(`(?m)^  (?:async )?([a-z]\w*)\(`)
	all := func(text string) map[string][]string {
		classes := map[string][]string{}
		for _, found := range class.FindAllStringSubmatch(text, -1) {
			names := []string{}
			for _, one := range method.FindAllStringSubmatch(found[3], -1) {
				if one[1] != "constructor" && one[1] != "cancel" { // The worker cancels a job; a handler does not.
					names = append(names, one[1])
				}
			}
			slices.Sort(names)
			classes[found[1]+" of "+found[2]] = names
		}
		return classes
	}
	code, declared := all(source(t, "typescript/src/headgate.js")), all(source(t, "typescript/src/headgate.d.ts"))
	if len(code) < 10 || len(code["Client of "]) != len(wrapped) || !maps.EqualFunc(code, declared, slices.Equal) {
		t.Errorf("the source has %v\nand declared are %v", code, declared)
	}
}

// generator writes schemas as types of TypeScript: what an object has, not what bounds its values.
type generator struct {
	schemas object
	done    map[string]string
}

// visit writes every schema that a part of the description names.
func (g *generator) visit(node any) {
	switch node := node.(type) {
	case object:
		if ref, ok := node["$ref"].(string); ok && strings.HasPrefix(ref, "#/components/schemas/") {
			g.name(ref)
		}
		for _, inner := range node {
			g.visit(inner)
		}
	case []any:
		for _, inner := range node {
			g.visit(inner)
		}
	}
}

// name writes a schema, once, and returns its name.
func (g *generator) name(ref string) string {
	name := strings.TrimPrefix(ref, "#/components/schemas/")
	if _, known := g.done[name]; !known {
		g.done[name] = "" // It may name itself.
		g.done[name] = g.write(g.schemas[name], "")
	}
	return name
}

func (g *generator) write(node any, indent string) string {
	schema, _ := node.(object)
	var parts []string
	if ref, ok := schema["$ref"].(string); ok {
		parts = append(parts, g.name(ref))
	}
	if all, ok := schema["allOf"].([]any); ok {
		for _, one := range all {
			if inner, _ := one.(object); inner["not"] == nil {
				parts = append(parts, g.write(one, indent))
			}
		}
	}
	values, listed := schema["enum"].([]any)
	if constant, ok := schema["const"]; ok {
		values, listed = []any{constant}, true
	}
	kind, _ := schema["type"].(string)
	kinds, several := schema["type"].([]any)
	switch {
	case several:
		texts := make([]string, len(kinds))
		for i, one := range kinds {
			if texts[i] = "null"; one != "null" {
				texts[i] = g.write(map[string]any{"type": one}, indent)
			}
		}
		parts = append(parts, strings.Join(texts, " | "))
	case listed:
		texts := make([]string, len(values))
		for i, value := range values {
			text, _ := json.Marshal(value)
			texts[i] = string(text)
		}
		parts = append(parts, strings.Join(texts, " | "))
	case schema["properties"] != nil || schema["required"] != nil:
		parts = append(parts, g.members(schema, indent))
	case kind == "object" && schema["additionalProperties"] != nil:
		parts = append(parts, "Record<string, "+g.write(schema["additionalProperties"], indent)+">")
	case kind == "array":
		parts = append(parts, "Array<"+g.write(schema["items"], indent)+">")
	case kind == "integer":
		parts = append(parts, "number")
	case kind == "string" || kind == "number" || kind == "boolean":
		parts = append(parts, kind)
	}
	if len(parts) == 0 {
		return "unknown"
	}
	return strings.Join(parts, " & ")
}

func (g *generator) members(schema object, indent string) string {
	required, _ := schema["required"].([]any)
	properties, _ := schema["properties"].(object)
	var text strings.Builder
	text.WriteString("{\n")
	names := slices.Collect(maps.Keys(properties))
	for _, name := range required {
		if properties[name.(string)] == nil { // Of another part of the whole.
			names = append(names, name.(string))
		}
	}
	for _, name := range slices.Sorted(slices.Values(names)) {
		mark, kind := "?", "{}"
		if slices.Contains(required, any(name)) {
			mark = ""
		}
		if inner, ok := properties[name].(object); ok {
			if about, ok := inner["description"].(string); ok {
				fmt.Fprintf(&text, "%s  /** %s */\n", indent, strings.ReplaceAll(strings.TrimSpace(about), "\n", " "))
			}
			kind = g.write(inner, indent+"  ")
		}
		fmt.Fprintf(&text, "%s  %s%s: %s;\n", indent, name, mark, kind)
	}
	text.WriteString(indent + "}")
	return text.String()
}
