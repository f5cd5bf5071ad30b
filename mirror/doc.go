// Package mirror copies what Headgate keeps for a time only into tables of an SQL database, for those who ask about the past: what operators did,
// the versions of the policy, what tenants used in a day, the transitions of circuit breakers, and rates that were not
// usual.
//
//	Redis                                        mirror (headgate mirror)            database
//	audit of each partition      stream ──────▶  reads on from the place   ──────▶  headgate_audit
//	transitions of breakers      stream ──────▶  that the database has     ──────▶  headgate_transitions
//	anomalies                    stream ──────▶                            ──────▶  headgate_anomalies
//	versions of the policy       hash   ──────▶                            ──────▶  headgate_policy_versions
//	usage by day                 hashes ──────▶  writes what differs       ──────▶  headgate_usage
//	                                             place, rows: one commit   ──────▶  headgate_mirror_place, headgate_mirror_gaps
//
// Redis stays the only judge: nothing of Headgate reads a decision from these tables. It needs database/sql and no driver.
//
// # What holds
//
// Once. A row's primary key is what Redis has: the partition and the id of the entry, the version, or day, tenant and queue. Rows and the place up
// to which all is copied are of one transaction, so a mirror that is killed begins again where the rows end. Of several on one database one works.
//
// Late, not lost. With the database or Redis away rows are late, and nothing else happens: the mirror comes again, with ever longer pauses.
//
// Never silent. Redis keeps the last 10,000 entries of a partition's audit, about 1,000 transitions, 1,000 anomalies, 100 versions, and usage for 35 days. What has
// gone from there before it was copied is a row of headgate_mirror_gaps, a line of the log and a count of Stats. Where entries of one act have been
// merged meanwhile, up to 8 more may be missing than are told.
package mirror
