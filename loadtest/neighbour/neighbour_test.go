package main

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain lets this binary be the attacker.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == attackWord {
		if err := attackAs(context.Background(), os.Args[2:]); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// TestNothingIsRefusedForTheNeighbour: a small run of the whole, in which some attacks are made and the neighbour is answered as ever. How
// long that takes is for make neighbour.
func TestNothingIsRefusedForTheNeighbour(t *testing.T) {
	t.Parallel()
	var out, notes bytes.Buffer
	some := slices.DeleteFunc(slices.Clone(attacks), func(a attack) bool {
		return !slices.Contains([]string{"check, bodies of zeros", "duplicates of 1 MB", "list jobs", "nowhere"}, a.name)
	})
	if err := run(t.Context(), options{connections: 24, span: 150 * time.Millisecond, pace: 8 * time.Millisecond}, some, &out, &notes); err != nil {
		t.Fatalf("%v\n%s", err, notes.String())
	}
	text := out.String()
	for _, a := range some {
		if !strings.Contains(text, "`"+a.name+"`") {
			t.Errorf("no row of %s", a.name)
		}
	}
	if !strings.HasSuffix(text, " 0 refused\n") {
		t.Errorf("%s\n%s", text, notes.String())
	}
}

func TestPercentilesAndRatios(t *testing.T) {
	t.Parallel()
	var all []time.Duration
	for n := range 200 {
		all = append(all, time.Duration(200-n)*time.Millisecond)
	}
	if got := p99(all); got != 199*time.Millisecond {
		t.Errorf("p99 is %s", got)
	}
	if got := ratio(all, []time.Duration{time.Millisecond}); got != 199 || p99(nil) != 0 {
		t.Errorf("ratio is %v", got)
	}
	if got := (tally{made: 10, good: 4, span: 2 * time.Second}).String(); got != "5, 2" {
		t.Errorf("%s", got)
	}
}
