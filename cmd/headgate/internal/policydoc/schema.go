package policydoc

import (
	"encoding/json"
	"io"
	"maps"
	"strings"
)

// schemaID names the schema. Nobody has to fetch it.
const schemaID = "https://github.com/headgate/headgate/policy.schema.json"

// Schema writes the JSON Schema (draft 2020-12) of the policy document.
func Schema(to io.Writer) error {
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(document())
}

// document is the schema of the whole document.
func document() map[string]any {
	definitions := map[string]any{}
	for _, o := range objects[1:] {
		definitions[o.name] = o.schema()
	}
	root := objects[0].schema()
	maps.Copy(root, map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": schemaID, "$defs": definitions,
	})
	return root
}

// schema is that of one object. Fields that are not in it are refused, as package policy does.
func (o object) schema() map[string]any {
	properties := map[string]any{}
	for _, f := range o.fields {
		schema := f.kind.schema()
		schema["description"] = f.description()
		properties[f.name] = schema
	}
	schema := map[string]any{
		"type": "object", "title": o.title, "description": plain(o.doc), "properties": properties, "additionalProperties": false,
	}
	if len(o.needs) > 0 {
		schema["required"] = o.needs
	}
	maps.Copy(schema, o.rule)
	return schema
}

// description is what an editor shows of a field: what it is, its range and what holds without it.
func (f field) description() string {
	text := plain(f.doc)
	switch f.kind.(type) {
	case whole, span, share:
		text += " Allowed: " + f.kind.allowed() + "."
	}
	return text + " Not there: " + plain(f.unset) + "."
}

// plain is a text without Markdown, for editors.
func plain(text string) string { return strings.ReplaceAll(text, "`", "") }
