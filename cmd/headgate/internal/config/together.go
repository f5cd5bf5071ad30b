package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
)

// together reports values that are allowed each and contradict each other.
func (l *Loaded) together() error {
	c := &l.Config
	var bad []error
	if c.Worker.Deliver.URL != "" && l.Given(PathCommand) {
		bad = append(bad, fmt.Errorf("%s and %s are both given: say what runs the jobs, by one of --deliver URL and --exec COMMAND",
			l.Field(PathDeliver), l.Field(PathCommand)))
	}
	if c.Scheduler.Notify.URL != "" && !c.Scheduler.Enabled {
		bad = append(bad, fmt.Errorf("%s needs scheduler.enabled: schedulers tell", l.Field(PathNotify)))
	}
	tls := c.Redis.TLS
	if (tls.CertFile == "") != (tls.KeyFile == "") {
		bad = append(bad, errors.New("redis.tls.cert_file and redis.tls.key_file are both needed, or none of them"))
	}
	if url := c.Redis.URL; url != "" && !isTLS(url) && !isTLS(c.Redis.Store.Second) {
		for i := range l.table {
			o := &l.table[i]
			if strings.HasPrefix(o.Path, "redis.tls.") && o.show(c) != o.Default {
				bad = append(bad, fmt.Errorf("%s is for rediss://, and %s is another address", l.Field(o.Path), l.Field(PathURL)))
			}
		}
	}
	bad = append(bad, l.serveTogether()...)
	if strings.HasPrefix(c.Tracing.Endpoint, "http://") && !c.Tracing.Insecure {
		bad = append(bad, fmt.Errorf("%s would send traces and headers in the clear: give https://, or say so with tracing.insecure", l.Field(pathTraces)))
	}
	for _, path := range []string{pathPassword, pathSecret, PathNotifySecret, pathKeys, pathJWKS, pathTraceHeaders} {
		if from := l.source(path); from != Default && from == l.source(path+fileSuffix) {
			bad = append(bad, fmt.Errorf("%s and %s come from one source: give one of them", l.Field(path), l.Field(path+fileSuffix)))
		}
	}
	bad = append(bad, l.checkBreaker("worker.breaker", c.Worker.Breaker.Config))
	for _, name := range slices.Sorted(maps.Keys(c.Worker.Breakers)) {
		path := breakersPath + delimiter + name
		if l.Given(path+".open_base") || l.Given(path+".open_max") {
			bad = append(bad, l.checkBreaker(path, c.Worker.Breakers[name].Config))
		}
	}
	return errors.Join(bad...)
}

// isTLS reports whether an address is one for TLS.
func isTLS(url string) bool {
	return strings.HasPrefix(url, "rediss://") || strings.HasPrefix(url, "rediss-sentinel://") || strings.HasPrefix(url, "rediss-cluster://")
}

// checkBreaker reports the one thing about a breaker that the bounds of its options leave open.
func (l *Loaded) checkBreaker(path string, config breaker.Config) error {
	if config.Validate() == nil {
		return nil
	}
	return &admission.FieldError{Field: l.Field(path + ".open_max"), Value: config.OpenMax.String(), Allowed: config.OpenBase.String() + ", which is open_base, to 24h"}
}

// copyBreakers gives each downstream that is named a breaker of its own.
func (l *Loaded) copyBreakers(names []string) {
	l.Config.Worker.Breakers = make(map[string]*Breaker, len(names))
	for _, name := range names {
		l.Config.Worker.Breakers[name] = new(l.Config.Worker.Breaker)
	}
}

// Secret is what nobody is shown.
type Secret struct {
	// Text is the secret, Name what errors call it: the option that gave it, and the file where it is in one.
	Text, Name string
	// Given says whether there is any.
	Given bool
}

// secretOf returns a secret or the text of its file, whichever comes from the stronger source.
func (l *Loaded) secretOf(path, text, file string) (Secret, error) {
	if l.source(path+fileSuffix) < l.source(path) || file == "" {
		return Secret{text, l.Field(path), l.Given(path)}, nil
	}
	bytes, err := readAll(file)
	if err != nil {
		return Secret{}, fmt.Errorf("%s: read secret: %w", l.Field(path+fileSuffix), err)
	}
	text = strings.TrimSuffix(strings.TrimSuffix(string(bytes), "\n"), "\r")
	return Secret{text, l.Field(path+fileSuffix) + " " + file, true}, nil
}

// naming puts names of options into an error: by names are those of fields that a package calls by names of its own. Of all else it is told
// where it is.
func naming(err error, where string, names map[string]string) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, one := range joined.Unwrap() {
			all = append(all, naming(one, where, names))
		}
		return errors.Join(all...)
	}
	if bad, ok := errors.AsType[*admission.FieldError](err); ok && names[bad.Field] != "" {
		return &admission.FieldError{Field: names[bad.Field], Value: bad.Value, Allowed: bad.Allowed}
	}
	return within(where, err)
}
