package policydoc

import (
	"fmt"
	"io"
	"strings"
)

// referenceHead is what stands above the tables.
const referenceHead = `# The policy, field by field

<!-- Written by "headgate policy reference"; go test ./cmd/headgate/internal/policydoc -update writes it anew. -->

One JSON document says which limits, weights and bounds are in force for whom. ` + "`headgate policy set FILE`" + ` stores it for all
processes, ` + "`headgate policy get`" + ` prints the one in force, ` + "`headgate policy merge FILE`" + ` changes a part. Where nothing was stored the
built-in policy is in force: every tenant may send 200 jobs a second, 50 at once.
[Limits and tiers](guides/limits-and-tiers.md) has a whole file with its reasons.

A duration is text such as ` + "`\"500ms\"`, `\"30s\"`, `\"24h\"`" + `; a scope is names with colons between, such as ` + "`acme:mail`" + `. A name is 1 to 128 bytes
of ` + "`A-Za-z0-9._@/-`" + `, and no tenant is called ` + "`global`" + `. Fields that are not listed here are refused, by name; a document has 4 MiB at most.

` + "`headgate policy schema > policy.schema.json`" + ` writes the same as a JSON Schema, for editors. In Visual Studio Code this in
` + "`settings.json`" + ` completes and checks files that are called so:

` + "```json" + `
{"json.schemas": [{"fileMatch": ["*policy.json"], "url": "./policy.schema.json"}]}
` + "```" + `
`

// Reference writes the reference of the policy document in Markdown.
func Reference(to io.Writer) error {
	var out strings.Builder
	out.WriteString(referenceHead)
	for _, o := range objects {
		heading := o.title
		if o.name == "" {
			heading = "The document"
		}
		fmt.Fprintf(&out, "\n## %s\n\n%s\n\n| field | allowed | not there | |\n| --- | --- | --- | --- |\n", heading, o.doc)
		for _, f := range o.fields {
			fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", f.name, cell(f.kind.allowed()), cell(f.unset), cell(f.doc))
		}
	}
	_, err := io.WriteString(to, out.String())
	return err
}

// cell keeps a text inside its cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
