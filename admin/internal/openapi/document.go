package openapi

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

//go:embed openapi.yaml
var source []byte

// Document is the description, ready to be served and to check requests. It never changes, so several goroutines may use
// it.
type Document struct {
	text       []byte
	operations map[string]*Operation
}

// Operation is one method of a path.
type Operation struct {
	// Role, Reach and Load are x-headgate-role, x-headgate-reach and x-headgate-load.
	Role, Reach, Load string
	// BodyKind says what its bodies hold, and so how large they may be.
	BodyKind   BodyKind
	body       *jsonschema.Schema
	shape      *shape
	bodyNeeded bool
	parameters map[string]parameter
	path       map[string]*jsonschema.Schema
}

// parameter is a query parameter.
type parameter struct {
	schema *jsonschema.Schema
	kind   string // string, integer or boolean
}

// BodyKind is what the bodies of an operation hold.
type BodyKind int

// The kinds of bodies.
const (
	// Fields are some fields, and lists of bounded length.
	Fields BodyKind = iota
	// Result has the result of a job beside them.
	Result
	// Payload has the payload of a job beside them.
	Payload
	// Policy is a policy, or its rules.
	Policy
)

// bodyKindOf reads x-headgate-body.
func bodyKindOf(text any) (BodyKind, error) {
	switch text {
	case nil:
		return Fields, nil
	case "result":
		return Result, nil
	case "payload":
		return Payload, nil
	case "policy":
		return Policy, nil
	}
	return 0, fmt.Errorf("x-headgate-body is %v; allowed is result, payload or policy", text)
}

// Load returns the description that is built in, which is read once in a process.
func Load() (*Document, error) { return loaded() }

var loaded = sync.OnceValues(load)

func load() (*Document, error) {
	var tree any
	if err := yaml.Unmarshal(source, &tree); err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	d := &Document{text: text, operations: map[string]*Operation{}}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	if err := compiler.AddResource(resource, document); err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	reader := &reader{compiler: compiler, root: document}
	for path, item := range members(at(document, "paths")) {
		for method := range members(item) {
			if method == "parameters" {
				continue
			}
			operation, err := reader.operation(path, method)
			if err != nil {
				return nil, fmt.Errorf("read openapi.yaml: %s %s: %w", method, path, err)
			}
			d.operations[strings.ToUpper(method)+" "+path] = operation
		}
	}
	return d, nil
}

// JSON is the text of the description.
func (d *Document) JSON() []byte { return d.text }

// Operation returns the operation of a method and a path, as in "GET /api/v1/jobs/{tenant}/{id}".
func (d *Document) Operation(pattern string) (*Operation, bool) {
	o, ok := d.operations[pattern]
	return o, ok
}

// Patterns returns every method with its path, in no order.
func (d *Document) Patterns() []string {
	patterns := make([]string, 0, len(d.operations))
	for pattern := range d.operations {
		patterns = append(patterns, pattern)
	}
	return patterns
}

// resource is the address under which the schemas find each other.
const resource = "urn:headgate:openapi"

// reader compiles operations.
type reader struct {
	compiler *jsonschema.Compiler
	root     any
}

func (r *reader) operation(path, method string) (*Operation, error) {
	place := []string{"paths", path, method}
	node := at(r.root, place...)
	o := &Operation{parameters: map[string]parameter{}, path: map[string]*jsonschema.Schema{}}
	o.Role, _ = at(node, "x-headgate-role").(string)
	o.Reach, _ = at(node, "x-headgate-reach").(string)
	o.Load, _ = at(node, "x-headgate-load").(string)
	if at(node, "requestBody") != nil {
		body, where := r.follow(append(place, "requestBody"))
		o.bodyNeeded, _ = at(body, "required").(bool)
		var err error
		schema := append(slices.Clip(where), "content", "application/json", "schema")
		if o.body, err = r.compile(schema); err != nil {
			return nil, err
		}
		o.shape = r.shape(schema)
		if o.BodyKind, err = bodyKindOf(at(node, "x-headgate-body")); err != nil {
			return nil, err
		}
	}
	for _, list := range [][]string{{"paths", path, "parameters"}, append(place, "parameters")} {
		entries, _ := at(r.root, list...).([]any)
		for i := range entries {
			if err := r.parameter(o, append(list, strconv.Itoa(i))); err != nil {
				return nil, err
			}
		}
	}
	return o, nil
}

func (r *reader) parameter(o *Operation, place []string) error {
	node, where := r.follow(place)
	name, _ := at(node, "name").(string)
	schema, err := r.compile(append(where, "schema"))
	if err != nil {
		return err
	}
	switch at(node, "in") {
	case "query":
		kind, _ := at(node, "schema", "type").(string)
		o.parameters[name] = parameter{schema: schema, kind: kind}
	case "path":
		o.path[name] = schema
	}
	return nil
}

// follow returns the node at a place, or the one that it refers to, and where that is.
func (r *reader) follow(place []string) (any, []string) {
	node := at(r.root, place...)
	if ref, ok := at(node, "$ref").(string); ok {
		place = strings.Split(strings.TrimPrefix(ref, "#/"), "/")
		node = at(r.root, place...)
	}
	return node, place
}

func (r *reader) compile(place []string) (*jsonschema.Schema, error) {
	escaped := make([]string, len(place))
	for i, part := range place {
		escaped[i] = strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(part)
	}
	return r.compiler.Compile(resource + "#/" + strings.Join(escaped, "/"))
}

// at returns what is below a node; nil where there is nothing.
func at(node any, place ...string) any {
	for _, part := range place {
		switch n := node.(type) {
		case map[string]any:
			node = n[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(n) {
				return nil
			}
			node = n[i]
		default:
			return nil
		}
	}
	return node
}

func members(node any) map[string]any {
	m, _ := node.(map[string]any)
	return m
}
