// Package check holds the tests that read what deploys Headgate as those programs do that it is for: the manifests of deploy/k8s
// by the types of Kubernetes, docker-compose.yml by the loader of docker compose, the Dockerfile by BuildKit's parser and
// linter. It is a module of its own, so that no user of Headgate gets those as a dependency: make deploy-check.
package check
