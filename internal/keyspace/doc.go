// Package keyspace names every key of Headgate in one place.
//
// All keys of a partition share one hash tag, PREFIX{TAG}, so that a script may touch any of them in a cluster:
// "hg{0}:state" is the state hash of partition 0, which is the only one unless a deployment chose more. The tags of
// the others are chosen so that their slots lie evenly. A tenant's jobs are all in one partition, by its name. A script gets the state key and names the
// others after it, because it learns which tenants and lanes it touches only as it runs. No name that a client
// chooses stands in front of the tag, and a tenant or queue holds no ':', so no scope can reach the keys of
// another.
package keyspace
