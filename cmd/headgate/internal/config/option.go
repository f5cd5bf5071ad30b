package config

import (
	"cmp"
	"strings"
)

// Option is one thing that can be configured.
type Option struct {
	// Path names it in files, "worker.concurrency".
	Path string
	// Flag is the flag that sets it, without dashes; empty for none but --set.
	Flag string
	// Variable is the environment variable, if it is not the one that the path makes.
	Variable string
	// Doc says what it is, in one sentence or two.
	Doc string
	// Default is its value as text; empty means that it is not set, and Unset says what happens then.
	Default, Unset string
	// Live is set if a process that runs can change it.
	Live bool
	// secret is set if nobody is to see the value; mask hides what is secret in one, nil for nothing.
	secret bool
	mask   func(string) string
	value
}

// value is how an option is read and written. Its methods know their place in a Config.
type value interface {
	// Type names the type, "duration".
	Type() string
	// Allowed says what is allowed, "200ms to 10m".
	Allowed() string
	// read puts a value into the Config: one of a file, or text of a variable or a flag. It returns what is not allowed, as
	// it is to be shown, and then has changed nothing.
	read(to *Config, raw any, text bool) (bad []string)
	// show returns the value as text, which read takes.
	show(from *Config) string
	// Example is a value as a file has it, where that is written otherwise there than in a variable; else empty.
	Example() string
	// form says how a value is to be written that read did not take because of its form; else it is empty.
	form(raw any, text bool) string
	// plain returns the value as a file has it: a string, a number, a bool or a list of strings.
	plain(from *Config) any
}

const (
	variablePrefix = "HEADGATE_"
	// FileVariable names the file where no flag does.
	FileVariable = variablePrefix + "CONFIG"
	// breakersPath is above the breakers of single downstreams: breakersPath.NAME.window.
	breakersPath = "worker.breakers"
	// anyName stands for their names where the options are listed.
	anyName = "NAME"
)

// Env returns the variable that sets the option. Those of a single downstream have none of their own: names do not fit
// into variables.
func (o *Option) Env() string {
	if strings.HasPrefix(o.Path, breakersPath+".") {
		return ""
	}
	return cmp.Or(o.Variable, variablePrefix+strings.ToUpper(strings.ReplaceAll(o.Path, ".", "_")))
}

// section is the first part of the path.
func (o *Option) section() string {
	name, _, _ := strings.Cut(o.Path, delimiter)
	return name
}

// Secret says whether the value, or a part of it, is shown to nobody.
func (o *Option) Secret() bool { return o.secret || o.mask != nil }

// masked returns the value fit to be shown.
func (o *Option) masked(text string) string {
	switch {
	case o.secret:
		return hidden
	case o.mask == nil || text == "":
		return text
	}
	return o.mask(text)
}

// options returns the table, with the breakers of the given downstreams.
func options(downstreams ...string) []Option {
	all := append(redisOptions(), workerOptions()...)
	all = append(all, deliveryOptions()...)
	all = append(all, breakerOptions("worker.breaker", defaultBreaker)...)
	for _, name := range downstreams {
		all = append(all, breakerOptions(breakersPath+"."+name, breakerOf(name))...)
	}
	all = append(all, schedulerOptions()...)
	all = append(all, serveOptions()...)
	all = append(all, boundOptions()...)
	all = append(all, limiterOptions()...)
	all = append(all, authzOptions()...)
	all = append(all, rlsOptions()...)
	all = append(all, credentialOptions()...)
	all = append(all, guardOptions()...)
	all = append(all, metricsOptions()...)
	all = append(all, tracingOptions()...)
	return append(all, logOptions()...)
}
