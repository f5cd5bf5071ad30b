// Package check holds the test that decodes the manifests of deploy/k8s into the types of Kubernetes. It is a module of its
// own, so that no user of Headgate gets those as a dependency: make deploy-check.
package check
