// Package rlstest holds package rls to the client of grpc-go and to the protos that Envoy publishes, which package rls itself links neither of.
// It has tests and a benchmark alone.
package rlstest
