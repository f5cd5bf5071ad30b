package admission

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ValidateName returns a *FieldError unless name is 1-128 bytes of [A-Za-z0-9._:@/-]. Where separates is true
// the name may hold no ':' either, which separates the parts of a scope.
func ValidateName(field, name string, separates bool) error {
	allowed := "1-128 bytes of [A-Za-z0-9._:@/-]"
	if separates {
		allowed = "1-128 bytes of [A-Za-z0-9._@/-]"
	}
	if len(name) == 0 || len(name) > MaxNameLength {
		return &FieldError{field, quote(name), allowed}
	}
	for i := range len(name) {
		c := name[i]
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '.' || c == '_' || c == '@' || c == '/' || c == '-' || c == ':' && !separates
		if !ok {
			return &FieldError{field, quote(name), allowed}
		}
	}
	return nil
}

// AccountSign parts the name of a downstream that has two parts: the service that is called, and the account there on whose behalf.
const AccountSign = "+"

// ServiceOf returns the service of a downstream, and whether the downstream names an account of it. What has no account is a service.
func ServiceOf(downstream string) (service string, ofAccount bool) {
	service, _, ofAccount = strings.Cut(downstream, AccountSign)
	return service, ofAccount
}

// Service returns the service of the job's Downstream.
func (j *Job) Service() string {
	service, _ := ServiceOf(j.Downstream)
	return service
}

// ValidateDownstream returns a *FieldError unless name may name what a job calls: a service, or SERVICE+ACCOUNT, each part as ValidateName has it
// and both together 1-128 bytes. Where separates is true neither may hold a ':'.
func ValidateDownstream(field, name string, separates bool) error {
	service, account, two := strings.Cut(name, AccountSign)
	if !two {
		return ValidateName(field, name, separates)
	}
	if len(name) > MaxNameLength || ValidateName(field, service, separates) != nil || ValidateName(field, account, separates) != nil {
		allowed := "SERVICE or SERVICE+ACCOUNT, one + and in both parts [A-Za-z0-9._:@/-], 1-128 bytes in all"
		if separates {
			allowed = strings.Replace(allowed, ":", "", 1)
		}
		return &FieldError{field, quote(name), allowed}
	}
	return nil
}

// ValidateService is ValidateDownstream of what is a service's alone, such as its circuit breaker.
func ValidateService(field, name string, separates bool) error {
	if service, ofAccount := ServiceOf(name); ofAccount && ValidateDownstream(field, name, separates) == nil {
		return &FieldError{field, quote(name), "the service alone, " + strconv.Quote(service) + ": all of its accounts have one circuit breaker"}
	}
	return ValidateName(field, name, separates)
}

// validateStep returns a *FieldError if a name is ., .. or /, which in a path of the API is a step and no part, however it is escaped. Data of older
// releases may have such names: they are looked at, and nothing new is called so.
func validateStep(field, name string) error {
	if name == "." || name == ".." || name == "/" {
		return &FieldError{field, quote(name), `any name but ".", ".." and "/", which are steps of a path`}
	}
	return nil
}

// ValidateTenant returns a *FieldError unless name may name a tenant.
func ValidateTenant(name string) error {
	if name == string(Global) {
		return &FieldError{"tenant", quote(name), `any name but "global", which is the outermost scope`}
	}
	return ValidateName("tenant", name, true)
}

// Validate reports every bad field of the job at once. maxPayload is in bytes. The class and the deadline are
// checked where the queue's classes and the clock of Redis are known.
func (j *Job) Validate(maxPayload int) error {
	var bad []error
	check := func(err error) {
		if err != nil {
			bad = append(bad, err)
		}
	}
	check(ValidateTenant(j.Tenant))
	check(ValidateName("queue", j.Queue, true))
	check(ValidateName("type", j.Type, false))
	if j.ID != "" {
		check(ValidateName("id", j.ID, false))
	}
	if j.Downstream != "" {
		check(ValidateDownstream("downstream", j.Downstream, false))
	}
	check(validateStep("tenant", j.Tenant))
	check(validateStep("queue", j.Queue))
	check(validateStep("id", j.ID))
	check(validateStep("downstream", j.Downstream))
	if j.Cost < 1 || j.Cost > MaxCost {
		check(intError("cost", int64(j.Cost), 1, int64(MaxCost), "tokens"))
	}
	if j.MaxAttempts < 0 || j.MaxAttempts > MaxAttemptsLimit {
		check(intError("max attempts", int64(j.MaxAttempts), 1, MaxAttemptsLimit, "runs, or 0 for the default"))
	}
	if j.Timeout < 0 || j.Timeout > MaxTimeout {
		check(&FieldError{"timeout", j.Timeout.String(), "0 to " + MaxTimeout.String()})
	}
	if len(j.Payload) > maxPayload {
		check(&FieldError{"payload", strconv.Itoa(len(j.Payload)) + " bytes", "0 to " + strconv.Itoa(maxPayload) + " bytes"})
	}
	check(j.validateHeaders())
	if !j.Deadline.IsZero() && (j.Deadline.Before(minDeadline) || j.Deadline.After(maxDeadline)) {
		check(&FieldError{"deadline", j.Deadline.UTC().Format(time.RFC3339), "a time from 2000 to 2090"})
	}
	bad = append(bad, j.validateStart()...)
	bad = append(bad, j.Unique.validate()...)
	return errors.Join(bad...)
}

func (j *Job) validateStart() (bad []error) {
	if j.Delay < 0 || j.Delay > MaxDelay {
		bad = append(bad, &FieldError{"delay", j.Delay.String(), "0 to " + MaxDelay.String()})
	}
	if j.RunAt.IsZero() {
		return bad
	}
	if j.RunAt.Before(minDeadline) || j.RunAt.After(maxDeadline) {
		bad = append(bad, &FieldError{"run at", j.RunAt.UTC().Format(time.RFC3339), "a time from 2000 to 2090"})
	}
	if j.Delay != 0 {
		bad = append(bad, &FieldError{"run at", j.RunAt.UTC().Format(time.RFC3339), "nothing beside a delay: one of the two"})
	}
	if !j.Deadline.IsZero() && j.Deadline.Before(j.RunAt) {
		bad = append(bad, &FieldError{"run at", j.RunAt.UTC().Format(time.RFC3339), "a time before the deadline, " + j.Deadline.UTC().Format(time.RFC3339)})
	}
	return bad
}

func (u Unique) validate() (bad []error) {
	if u == (Unique{}) {
		return nil
	}
	if err := ValidateName("unique key", u.Key, false); err != nil {
		bad = append(bad, err)
	}
	if u.For != 0 && (u.For < time.Millisecond || u.For > MaxUniqueFor) {
		bad = append(bad, &FieldError{"unique for", u.For.String(), "1ms to " + MaxUniqueFor.String() + ", or 0 for " + DefaultUniqueFor.String()})
	}
	switch u.Release {
	case "", ReleaseAtEnd, ReleaseAtStart, ReleaseAtExpiry:
	default:
		bad = append(bad, &FieldError{"unique release", quote(string(u.Release)), "end, start or expiry"})
	}
	return bad
}

// Deadlines are scores of sorted sets in microseconds, with room above them for blocked lanes.
// The first is when the clock of a testing/synctest bubble begins.
var (
	minDeadline = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	maxDeadline = time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC)
)

func (j *Job) validateHeaders() error {
	if len(j.Headers) > MaxHeaders {
		return intError("headers", int64(len(j.Headers)), 0, MaxHeaders, "entries")
	}
	size := 0
	for name, value := range j.Headers {
		if err := ValidateName("header name", name, false); err != nil {
			return err
		}
		switch name {
		case HeaderUncharged:
			return &FieldError{"header name", quote(name), "any other: this one is the store's"}
		case HeaderBackoff:
			if _, _, err := ParseBackoff(value); err != nil {
				return err
			}
		}
		size += len(name) + len(value)
	}
	if size > MaxHeaderBytes {
		return intError("headers", int64(size), 0, MaxHeaderBytes, "bytes in all")
	}
	return nil
}

// ParseBackoff reads the value of HeaderBackoff. One duration is both base and most.
func ParseBackoff(value string) (base, most time.Duration, err error) {
	first, second, two := strings.Cut(value, " ")
	base, err = time.ParseDuration(first)
	most = base
	if err == nil && two {
		most, err = time.ParseDuration(second)
	}
	if err != nil || base < time.Millisecond || most < base || most > MaxBackoff {
		return 0, 0, &FieldError{"header " + HeaderBackoff, quote(value), `one or two durations such as "30s" or "1s 10m", 1ms to ` + MaxBackoff.String() + ", the longer one last"}
	}
	return base, most, nil
}

// Validate reports every bad field of the limit at once. path is where the limit stands, as tiers.gold.limit; the errors name the field below it.
func (l Limit) Validate(path string) error {
	if l.Disabled {
		return nil
	}
	var bad []error
	if l.Tokens < 1 || l.Tokens > MaxLimitTokens {
		bad = append(bad, intError(path+".tokens", int64(l.Tokens), 1, int64(MaxLimitTokens), "tokens"))
	}
	if !l.Window.IsZero() {
		return errors.Join(append(bad, l.validateWindow(path))...)
	}
	if l.Burst < 0 || l.Burst > MaxLimitTokens || l.Burst == 0 && len(bad) == 0 && l.Per >= MinLimitPer {
		bad = append(bad, intError(path+".burst", int64(l.Burst), 1, int64(MaxLimitTokens), "tokens"))
	}
	if l.Per < MinLimitPer || l.Per > MaxLimitPer {
		bad = append(bad, &FieldError{path + ".per", l.Per.String(), MinLimitPer.String() + " to " + MaxLimitPer.String()})
	}
	if len(bad) == 0 && float64(l.Burst)/float64(l.Rate()) > MaxRefill.Seconds() {
		bad = append(bad, &FieldError{path, fmt.Sprintf("burst %d at %d per %s", l.Burst, l.Tokens, l.Per), "an empty bucket fills within " + MaxRefill.String()})
	}
	return errors.Join(bad...)
}

// ValidateActualCost returns a *FieldError unless a cost that was found out afterwards is one.
func ValidateActualCost(actual Tokens) error {
	if actual < 0 || actual > MaxActualCost {
		return intError("cost", int64(actual), 0, int64(MaxActualCost), "tokens")
	}
	return nil
}

func intError(field string, value, low, high int64, unit string) error {
	return &FieldError{field, strconv.FormatInt(value, 10), fmt.Sprintf("%d to %d %s", low, high, unit)}
}

func quote(name string) string {
	if len(name) > MaxNameLength {
		return strconv.Quote(name[:32]) + "... (" + strconv.Itoa(len(name)) + " bytes)"
	}
	return strconv.Quote(strings.ToValidUTF8(name, "?"))
}
