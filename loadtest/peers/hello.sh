#!/usr/bin/env bash
# What hello world drags in, on Headgate and on its peers: a module of its own for each program of testdata/hello. Prints the
# rows of docs/perf/dependencies.md; each number is that of the command beside it.
#
#   loadtest/peers/hello.sh          # all but the time of a cold build
#   loadtest/peers/hello.sh 3        # cold builds as well, three rounds, the systems in turn
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
rounds=${1:-0}
systems=(headgate asynq river)
export GOFLAGS=-trimpath GOWORK=off CGO_ENABLED=0
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT

need() { # FOR a module: name@version
	case $1 in
	headgate) go mod edit -replace "github.com/headgate/headgate=$root" -require github.com/headgate/headgate@v0.0.0 ;;
	asynq) go mod edit -require github.com/hibiken/asynq@v0.26.0 ;;
	river) go mod edit -require github.com/riverqueue/river@v0.51.1 -require github.com/riverqueue/river/riverdriver/riverpgxv5@v0.51.1 ;;
	esac
}

printf '| | modules linked | names in go.sum | go list -m all | requirements in go.mod | packages compiled | stripped binary, MB |\n'
for system in "${systems[@]}"; do
	mkdir "$work/$system" && cd "$work/$system"
	cp "$here/testdata/hello/$system/main.go" .
	go mod init hello 2>/dev/null
	need "$system"
	go mod tidy 2>/dev/null
	go build -ldflags='-s -w' -o hello .
	printf '| %s | %d | %d | %d | %d | %d | %.1f |\n' "$system" \
		"$(go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}' . | sort -u | grep -c .)" \
		"$(cut -d' ' -f1 go.sum | sort -u | wc -l)" \
		"$(($(go list -m all | wc -l) - 1))" \
		"$(go mod edit -json | grep -c '"Version":')" \
		"$(go list -deps . | wc -l)" \
		"$(stat -c %s hello | awk '{print $1 / 1e6}')"
done

for round in $(seq "$rounds"); do
	for system in "${systems[@]}"; do
		cd "$work/$system"
		GOCACHE=$(mktemp -d -p "$work") && export GOCACHE
		TIMEFORMAT="round $round, $system: %R s of wall time, %U s of processor"
		time go build -ldflags='-s -w' -o hello .
		rm -rf "$GOCACHE"
		unset GOCACHE
	done
done
