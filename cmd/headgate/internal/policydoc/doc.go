// Package policydoc describes the policy document for people and for editors. One table says of each field what it is,
// in which unit and in which range; the JSON Schema that `headgate policy schema` prints and docs/POLICY.md, which
// `headgate policy reference` prints, are made of it.
//
// The table is held to package policy by tests: each object has the fields that policy.Unmarshal reads, no more and no
// fewer, and what lies within a range is taken while what lies beyond is refused.
//
// Documents of files and of standard input come in by ReadDocument.
package policydoc
