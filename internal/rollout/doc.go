// Package rollout brings a policy from a document into a store, and back. It exists because a store holds a policy
// twice, as the text that producers read and as the settings that dispatch needs, and both must come from one
// document in one step.
//
// Versions guard against lost updates: a document says which version it was made from, and is stored as the next one
// only if that is still in force.
package rollout
