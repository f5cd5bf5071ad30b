package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// words are the names of types that several public packages have, each with the one thing that it means in all of them. A package sees of
// it what is its own: that the front door has a Worker, and package worker one, is one word.
var words = map[string]string{
	"Breaker":        "a circuit breaker of a downstream",
	"BreakerRules":   "by what a breaker goes: as the policy says it, as a breaker has it in force",
	"Cap":            "how many jobs may be in workers' hands at a time under a name",
	"Client":         "what a program talks to a deployment through",
	"Config":         "what the main type of a package needs; each package has one",
	"DeadLetter":     "a job that will not run any more unless somebody redrives it",
	"Gate":           "what stops jobs under a name while it has no unit free",
	"Hold":           "a pause or a suspension: as it is asked for, as it is in force",
	"Instant":        "a reading of a clock; the unit is the package's own",
	"Job":            "work for a handler: as it is enqueued, as it waits, as it runs",
	"Limit":          "tokens a time and a burst: as it is written, as buckets calculate with it",
	"Limiter":        "what answers whether a request may pass",
	"Listed":         "a job of a listing",
	"Middleware":     "what stands around handlers",
	"Observer":       "who is told what a service does",
	"Outcome":        "how a worker's hold of a job ends",
	"Overflow":       "what becomes of jobs beyond a bound",
	"OverflowPolicy": "which of the ways that is: reject, drop the oldest, spill over",
	"Partition":      "a part of a deployment that decides alone: what it does, and Redis' own",
	"PeriodicJob":    "a job that is enqueued over and over",
	"Policies":       "where the policy is kept and changed",
	"Policy":         "the whole configuration of limits at one version: as it is kept, as it is changed",
	"Pool":           "workers that serve the same queues",
	"Refusal":        "that something may not pass, and why",
	"Reservation":    "tokens taken for work whose cost is not known yet",
	"Stats":          "what a service has counted since it was made",
	"TenantWeight":   "a tenant's weight in a class",
	"Verdict":        "the answer of the limits to what was asked",
	"Weights":        "how much each has beside the others",
	"Worker":         "what runs handlers",
}

// TestOneWordOneMeaning finds the types whose names several public packages share: each such name is in words, so that whoever adds the next
// one looks whether it means the same, and gives it another name where it does not.
func TestOneWordOneMeaning(t *testing.T) {
	t.Parallel()
	places := map[string][]string{}
	for _, u := range list(t, filepath.Join("..", "..")) {
		if isPublic(u) {
			for _, name := range typesOf(t, u) {
				places[name] = append(places[name], strings.TrimPrefix(u.ImportPath, module+"/"))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(places)) {
		if where := places[name]; len(where) > 1 && words[name] == "" {
			t.Errorf("%s is a type of %s: give one of them another name, or say in words what both are", name, strings.Join(where, " and "))
		}
	}
	for name := range words {
		if len(places[name]) < 2 {
			t.Errorf("%s is in words and a type of %d public packages", name, len(places[name]))
		}
	}
}

// typesOf returns the exported types of a package that are not other names for another's.
func typesOf(t *testing.T, u unit) (names []string) {
	t.Helper()
	for _, name := range u.GoFiles {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(u.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			group, ok := declaration.(*ast.GenDecl)
			if !ok || group.Tok != token.TYPE {
				continue
			}
			for _, one := range group.Specs {
				if spec, ok := one.(*ast.TypeSpec); ok && spec.Name.IsExported() && !spec.Assign.IsValid() {
					names = append(names, spec.Name.Name)
				}
			}
		}
	}
	return names
}
