// Package second keeps bodies of spilled jobs in a second Redis, and moves them there and back.
//
// The first Redis decides, and has the book: a stub of each job stays there, with its id, its place among those that are kept aside and
// its deadline. What is in the second is a copy by the name "SEQ KEY", which never changes. A copy counts if the stub says so; one that
// does not count stands in `copies` of the first, before it is written and until it is gone:
//
//	out    first: copies += name ─▶ second: write ─▶ first: record := stub, copies -= name
//	back   second: read ─▶ first: stub := record, copies += name ─▶ second: delete ─▶ first: copies -= name
//	left   first: the job leaves, copies += name ─▶ second: delete ─▶ first: copies -= name
//
// Each step in the first is one script, so that at any moment exactly one body of a job counts. Whoever is killed between two steps leaves
// a name in `copies`, and the next mover begins with those.
//
// One mover at a time has a number, which rises whenever another takes over and whenever an answer is in doubt. The first Redis takes
// nothing from a lower number, and the mover tells the second of its own before it does anything there, which then takes nothing from a
// lower one either. So a command that was sent long ago and is late can neither put a copy where nobody knows of it, nor delete one
// that counts.
package second
