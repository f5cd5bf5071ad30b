package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

func TestNumbersSpreadOverClasses(t *testing.T) {
	t.Parallel()
	two := []admission.Class{{Name: "urgent", Weight: 1}, {Name: "idle", Weight: 1}}
	for _, c := range []struct {
		name    string
		classes []admission.Class
		want    string // of the numbers 0 to 10
	}{
		{"one class", two[:1], "u u u u u u u u u u u"},
		{"two classes", two, "i i i i i u u u u u u"},
		{"the preset of three", admission.DefaultClasses(), "l l l l m m m h h h h"},
		{"the preset of four", PresetCritical(), "l l l m m h h h c c c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got strings.Builder
			for number := range MaxNumber + 1 {
				class, err := ClassOfNumber(number, c.classes)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&got, " %.1s", class)
			}
			if got.String()[1:] != c.want {
				t.Errorf("numbers 0 to 10 are%s, want %s", got.String(), c.want)
			}
		})
	}
}

func TestMoreUrgentNumbersNeverFallBehind(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		classes := make([]admission.Class, rapid.IntRange(1, admission.MaxClasses).Draw(t, "classes"))
		index := make(map[admission.Priority]int)
		for i := range classes {
			classes[i].Name = admission.Priority(fmt.Sprint("class", i))
			index[classes[i].Name] = i
		}
		last, used := len(classes), make(map[admission.Priority]int)
		for number := range MaxNumber + 1 {
			class, err := ClassOfNumber(number, classes)
			if err != nil || index[class] > last {
				t.Fatalf("number %d is class %d behind %d of %d, %v", number, index[class], last, len(classes), err)
			}
			last = index[class]
			used[class]++
		}
		if last != 0 || len(used) != min(len(classes), MaxNumber+1) {
			t.Fatalf("10 is class %d and %d of %d classes have a number", last, len(used), len(classes))
		}
		for class, numbers := range used {
			if even := (MaxNumber + 1) / len(classes); numbers < even || numbers > even+2 {
				t.Fatalf("%d of 11 numbers belong to %s of %d classes", numbers, class, len(classes))
			}
		}
	})
}

func TestClassOfNumberRefusesOtherNumbers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		number  int
		classes []admission.Class
		want    string
	}{
		{-1, admission.DefaultClasses(), "invalid priority -1: allowed is 0 to 10, 10 the most urgent"},
		{11, admission.DefaultClasses(), "invalid priority 11: allowed is 0 to 10, 10 the most urgent"},
		{5, nil, "invalid classes none: allowed is 1 to 128 classes"},
	} {
		_, err := ClassOfNumber(c.number, c.classes)
		if err == nil || err.Error() != c.want || !errors.Is(err, admission.ErrInvalid) {
			t.Errorf("ClassOfNumber(%d) = %v, want %s", c.number, err, c.want)
		}
	}
}

func TestNumbersStandForClasses(t *testing.T) {
	t.Parallel()
	policy := Policy{Queues: map[string]Queue{"ranked": {Classes: []admission.Class{{Name: "9", Weight: 1}, {Name: "x", Weight: 1}}}}}
	compiled, err := policy.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		queue    string
		priority admission.Priority
		want     admission.Priority
		ok       bool
	}{
		{"mail", "low", "low", true},
		{"mail", "0", "low", true},
		{"mail", "5", "medium", true},
		{"mail", "10", "high", true},
		{"mail", "11", "", false},
		{"mail", "-1", "", false},
		{"mail", "urgent", "", false},
		{"ranked", "9", "9", true},
		{"ranked", "1", "x", true},
	} {
		if got, ok := compiled.ClassNamed(c.queue, c.priority); got != c.want || ok != c.ok {
			t.Errorf("%s of %s is %q, %t; want %q, %t", c.priority, c.queue, got, ok, c.want, c.ok)
		}
	}
}
