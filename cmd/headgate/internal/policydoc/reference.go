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

The policy is one document: to change a tenant's entry is to store and to compare all of it. With ` + "`\"tenant_records\": true`" + ` a tenant may have a record beside it, which is
stored by itself, so an edit costs nine commands of Redis with ten tenants and with a million:

` + "```json\n" + `{"tier": "premium", "priority_weights": {"high": 3}, "max_running": 5, "dispatch": {"tokens": 5, "per": "1s"}, "overflow": {"policy": "reject", "max_jobs": 100000}, "limit": {"tokens": 100, "per": "1s", "burst": 200},
 "queues": {"mail": {"limit": {"tokens": 20, "per": "1s"}, "priority_limits": {"low": {"enabled": false}}, "max_running": 2, "overflow": {"policy": "spillover", "max_jobs": 1000}}},
 "semaphores": {"gpu": {"max": 4}, "*": {"max": 10}}}
` + "```" + `

It has the tenant's tier, weights, how many of its jobs workers hold at a time, over all its queues and in single ones, and how many are dispatched in a time, [bounds of its depth](#overflow) over all its queues and in single ones, and limits, written [as in the policy](#limit), of the tenant, of 64 queues at most and of their classes and types of jobs, and of 64 of its semaphores, in 8 KiB; each takes the place of whatever the policy says there, also where
that says nothing, and what the record leaves out is as the policy says.

With its **tier** the tenant has all that the policy says of that tier: limits, weights, bounds of its depth, its place among those that are shed or cut last, limits of dimensions (a limiter that does not know the record yet goes by the policy's tier there, for one check). An edit of the tier holds for it as for a tenant that the policy names.
Of weights the record's own goes first, then that of ` + "`tenants.NAME.priority_weights`" + `, then that of the record's tier, then that of the policy's tier; a new one counts from the tenant's next dispatch on. A new bound, of a tier or of the record itself, counts what is in within seconds.
Of **bounds of depth** the record's own goes first, ` + "`" + `overflow` + "`" + ` over all its queues and ` + "`" + `queues.NAME.overflow` + "`" + ` in one, then ` + "`" + `overflows["acme"]` + "`" + ` and ` + "`" + `overflows["acme:mail"]` + "`" + `, then what each tenant has by the table above. ` + "`" + `{"policy": "none"}` + "`" + ` lifts them; over all queues a bound is one of ` + "`" + `reject` + "`" + `. An edit is in force for
the next job; lowered, it takes nothing out; raised, what is kept aside comes back as jobs of the tenant end. An admission reads a bound with its tenant's record, so it asks Redis for nothing more.
So it is with ` + "`max_running`" + `: the record's own (1 to 1,000,000; 0 says nothing) goes first, then ` + "`tenants.NAME.max_running`" + `, then that of the record's tier, then that of the policy's tier. An edit of a record or of a tier's cap is in force for the next dispatch. Raised, it wakes who waits for it in the same script; lowered, it takes nothing
back, and lets nothing more through until fewer run. A tier's costs as many commands with one record as with a million: of the tenants it looks at those that have jobs in workers' hands. A tier that records name cannot go:
the edit is refused, and says how many name it. Should a record name one all the same that the policy does not have, ` + "`standard`" + ` counts, and ` + "`headgate explain tenant`" + ` and ` + "`headgate doctor`" + ` say so; ` + "`headgate tenant list --tier NAME`" + ` lists who has a tier by the policy or by a record. With ` + "`tenant_records`" + ` a roll-out leaves weights and caps of tiers as they are.
Of **caps in single queues** the record's own goes first, ` + "`queues.mail.max_running`" + ` (1 to 1,000,000; 0 says nothing), then ` + "`max_running[\"acme:mail\"]`" + `, then ` + "`queues.mail.max_running_per_tenant`" + `; the tenant's cap over all its queues holds beside it. An edit of a record puts the cap in force in its own script, as that of ` + "`max_running`" + `: raised, it wakes who waits for it; lowered, it takes nothing
back. A dispatch asks for no record, so it costs what such a cap of the policy costs. While a record has one an edit of the policy's own of that tenant in that queue is kept beside it, and is in force once the record says nothing.
Of **semaphores** the record's own goes first, ` + "`semaphores.gpu`" + `, then its ` + "`semaphores.*`" + `, which is each of the tenant that the record does not name; then what the policy says: ` + "`semaphores[\"acme:gpu\"]`, `semaphores[\"acme:*\"]`, `semaphores[\"*\"]`" + `. Names in a record are without the tenant, and 0 lets nobody in. An edit is in force for whoever acquires from then on:
nobody is cut off, and who stands in line is served by the new number when the first of it asks again, within 10 ms. To acquire one of a tenant then compares the version of the record, which is a command more, and a call more where a deployment of several partitions has the semaphore in another than the record; where tenants have no records, and of a semaphore that is no tenant's, it is none.
Of **rates of dispatches** the record's own goes first, ` + "`dispatch`" + `, written as ` + "`tenants.NAME.dispatch`" + ` is, then that; ` + "`{\"enabled\": false}`" + ` in a record says that there is none, although the policy has one, and a tier has none. An edit of a record puts the rate in force in its own script: tokens that are
there stay, up to the new ` + "`burst`" + `, one that is new begins full, and who waits by the old one wakes, or waits by the new one. A dispatch asks for no record, so it costs what a rate of the policy costs. While a record has a rate an edit of the policy's own of that tenant is kept beside it, and is in force once the record says nothing.

` + "`headgate record set`, `get`, `list`, `export` and `import`, `PUT /api/v1/records/{tenant}`" + `
and in Go ` + "`hg.Policy().ChangeRecord`" + ` edit one; an edit is in force from the next job on, and in limiters, which have tokens on lease and remember refusals, half a second later where they are asked for others too, else a second. An edit may name the version of the record that it was
made from (` + "`If-Match`" + `), and the audit has each, of an import one entry for all. A producer, a limiter or a worker knows the records of those tenants that it serves, 65,536 at most: one that it does not
know costs the first call of its tenant another. A dry run of the policy
counts tenants with a record by that, before and after. ` + "`headgate record set --dry-run`, `record delete --dry-run` and `POST /api/v1/records/{tenant}/dry-run`" + ` tell what an edit of a record would change, and would have made of the tenant's last hour. ` + "`policy diff`" + `
and a roll-out are of the document; ` + "`headgate record diff FILE`" + ` tells what a file of records would change. A file of records goes out in parts by ` + "`headgate record import FILE --percent 5`" + `: of it those records are stored whose tenants are in by the same hash as in a [roll-out](#rollout), so a higher percent adds tenants and takes none out;
it tells how many were stored, were already as in the file and are left for later, and the audit has the percent behind the reason. ` + "`--dry-run`" + ` tells the same and stores nothing. ` + "`--id`" + ` is the salt, ` + "`records`" + ` unless it is said. ` + "`--undo before.jsonl`" + ` writes, before a record is stored, what its tenant had;
` + "`headgate record import before.jsonl`" + ` then takes all back, also records that were edited since. The file is added to by further steps, and the first state of a tenant stays. An import that was ended goes on when it is made again.

` + "`" + `headgate record adopt` + "`" + ` moves what the document has of single tenants into their records: ` + "`" + `tenants.NAME` + "`" + `, ` + "`" + `queue_limits` + "`" + `, ` + "`" + `priority_limits` + "`" + `, ` + "`" + `overflows` + "`" + `, ` + "`" + `max_running` + "`" + ` and ` + "`" + `semaphores` + "`" + ` of single tenants. First it stores the records, each with what the tenant has by the document and not by its record yet, then the document without
that, if the version that it has read is still in force. At each moment, and wherever it is cut off, each tenant has what it had, and its buckets stay as they are. Where a record says something else than the document the record stays, and the document's value, which was not in force, goes.
All that the document has of a tenant whose record would not be valid stays there, as with more than 64 queues or semaphores, or 8 KiB. What goes and what stays so is listed, with ` + "`" + `--json` + "`" + ` all of it.
` + "`" + `--dry-run` + "`" + ` tells the same and stores nothing, ` + "`" + `--tenants acme,bolt` + "`" + ` moves those alone, and to run it again goes on, or does nothing. It is refused during a roll-out, since records go before its rules, and when somebody has edited the document meanwhile. A document with 20,000 tenants, of 4 MB, was one of 384 bytes after 5 s.
The first call of a tenant to each process is one call more then, as after every edit of the document where tenants have records.
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
