// Package opa holds the test of headgate.rego, a policy by which Open Policy Agent asks `headgate serve`: it runs opa itself, a server and a Redis. It
// is a module of its own, so that no user of Headgate gets OPA as a dependency: make opa.
package opa
