package trace

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

// failed is the status of a request whose downstream failed.
const failed = "FAILED"

// workUnit is the number of images × steps that costs one token.
const workUnit = 30

// row reads one record and reports every bad cell at once.
func (p place) row(record []string, width int) (Row, error) {
	if len(record) != width {
		return Row{}, fmt.Errorf("%d cells where the header has %d", len(record), width)
	}
	var bad []error
	fault := func(err error) {
		if err != nil {
			bad = append(bad, err)
		}
	}
	cell := func(c cell) string { return c.of(record) }
	r := Row{Type: strings.Clone(cell(p.kind)), Tenant: strings.Clone(cell(p.tenant)), Downstream: strings.Clone(cell(p.downstream))}
	fault(present("tenant", r.Tenant, admission.ValidateTenant))
	fault(present("type", r.Type, func(name string) error { return admission.ValidateName("type", name, false) }))
	if r.Downstream != "" || p.downstream.otherwise == nil { // Without such a column nothing is called.
		fault(present("downstream", r.Downstream, func(name string) error { return admission.ValidateDownstream("downstream", name, false) }))
	}
	r.Fails = strings.EqualFold(cell(p.status), failed)
	var err error
	r.Arrival, err = arrival(cell(p.arrival))
	fault(err)
	r.RunTime, err = runTime(cell(p.runTime))
	fault(err)
	images, err := number("images", cell(p.images), math.MaxInt32)
	fault(err)
	steps, err := number("steps", cell(p.steps), math.MaxInt32)
	fault(err)
	cost := math.Max(1, math.Ceil(images*steps/workUnit))
	if cost > float64(admission.MaxCost) {
		fault(fmt.Errorf("cost %.0f is above %d tokens", cost, admission.MaxCost))
	}
	r.Cost = admission.Tokens(cost)
	prompt, err := number("prompt", orZero(cell(p.prompt)), admission.DefaultMaxPayload)
	fault(err)
	negative, err := number("negative prompt", orZero(cell(p.negative)), admission.DefaultMaxPayload)
	fault(err)
	if r.Bytes = int(prompt + negative); r.Bytes > admission.DefaultMaxPayload {
		fault(fmt.Errorf("payload of %d bytes is above %d", r.Bytes, admission.DefaultMaxPayload))
	}
	if len(bad) > 0 {
		return Row{}, oneLine(bad)
	}
	return r, nil
}

// oneLine joins errors by "; ", since a row is reported on one line.
func oneLine(bad []error) error {
	texts := make([]string, len(bad))
	for i, err := range bad {
		texts[i] = err.Error()
	}
	return errors.New(strings.Join(texts, "; "))
}

func present(what, text string, validate func(string) error) error {
	if text == "" {
		return fmt.Errorf("no %s", what)
	}
	return validate(text)
}

func orZero(text string) string {
	if text == "" {
		return "0"
	}
	return text
}

// number reads a number from 0 to most. Whole numbers often have a ".0" in such files.
func number(what, text string, most float64) (float64, error) {
	if text == "" {
		return 0, fmt.Errorf("no %s", what)
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(value) || value < 0 || value > most {
		return 0, fmt.Errorf("%s %.40q is not a number from 0 to %.0f", what, text, most)
	}
	return value, nil
}

// runTime reads seconds, or a duration with its unit.
func runTime(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 && d <= maxRunTime {
		return d, nil
	}
	seconds, err := number("run time", text, maxRunTime.Seconds())
	return time.Duration(seconds * float64(time.Second)), err
}

// arrival reads a time in one of the notations of the package comment.
func arrival(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, errors.New("no arrival")
	}
	for _, layout := range []string{time.DateTime, time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds >= 0 && seconds < 1e11 {
		whole, part := math.Modf(seconds)
		return time.Unix(int64(whole), int64(part*1e9)).UTC(), nil
	}
	return time.Time{}, fmt.Errorf("arrival %.40q is not a time such as 2024-11-15 16:57:50", text)
}
