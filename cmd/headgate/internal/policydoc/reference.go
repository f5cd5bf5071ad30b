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

## Which one holds

A job pays at each level that has a limit: ` + "`global`" + `, its tenant, its queue, its class and its type. At the tenant that is the tenant's own limit, else its tier's. The tier is that of its record, else that of its entry, else ` + "`standard`" + `.
The limit of a tenant in a queue, those of each class and of each type there, and the bound of its depth there (` + "`overflow`" + `) are looked for one by one in this order,
and the first that is there holds:

| | | limit | of a class | of a type | depth |
| --- | --- | --- | --- | --- | --- |
| 0 | its record's | ` + "`queues.mail.limit`, or `limit` at the tenant | `queues.mail.priority_limits.high` | `queues.mail.type_limits.report` | `queues.mail.overflow`" + ` |
| 1 | the tenant's own | ` + "`queue_limits[\"acme:mail\"]` | `priority_limits[\"acme:mail:high\"]` | `tenants.acme.queues.mail.type_limits.report` | `overflows[\"acme:mail\"]`" + ` |
| 2 | its tier's in the queue | ` + "`tiers.gold.queues.mail.limit` | `….priority_limits.high` | `….type_limits.report` | `….overflow`" + ` |
| 3 | the queue's | ` + "`queues.mail.each_tenant.limit` | `….each_tenant.priority_limits.high` | `….each_tenant.type_limits.report` | `queues.mail.overflow`" + ` |
| 4 | its tier's in every queue | ` + "`tiers.gold.queues.*.limit` | `….priority_limits.high` | `….type_limits.report` | `….overflow`" + ` |
| 5 | every queue's | ` + "`queues.*.each_tenant.limit` | `….each_tenant.priority_limits.high` | `….each_tenant.type_limits.report` | `queues.*.overflow`, or `overflows[\"*:*\"]`" + ` |

So what names the queue goes before ` + "`*`" + `, and of two that do, the one of the tier goes first. In one place a type by its name goes before the ` + "`*`" + ` of types, which is each that is not named there. One that says that there is no limit (` + "`{\"enabled\": false}`" + `), or no
bound (` + "`{\"policy\": \"none\"}`" + `), holds too, and ends the search. Figures are shared and tokens are not: each tenant has a bucket of its own in each queue, whatever says
how large it is. The depth of a tenant over all its queues is bounded by ` + "`overflow` of its record, else `overflows[\"acme\"]`, else `tiers.gold.overflow`, else `overflows[\"*\"]`" + `. ` + "`headgate explain tenant`, `headgate explain scope` and `headgate limit get`" + ` name what decided.

## Records of tenants

With ` + "`\"tenant_records\": true`" + ` a tenant may have a record beside the document, stored by itself, so that an edit costs the same with ten tenants and with a million. It has the tenant's tier, weights, caps, rate of dispatches, bounds of depth, limits and semaphores, each written as here and
each in the place of what the document says there. [A record for each tenant](guides/records.md) has its fields, what goes before what, how to edit many, and how what the document has of single tenants moves there.
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
