package config

import (
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/admission"
)

// Sources are where a configuration comes from. Each may be empty.
type Sources struct {
	// File is the name of a file; if it is empty, FileVariable may name one.
	File string
	// Environ are variables, as os.Environ has them.
	Environ []string
	// Flags are what flags were given, by the path of their option: text, or a list of texts.
	Flags map[string]any
	// Set are texts of the form KEY=VALUE.
	Set []string
}

// Loaded is a configuration, and where each part of it came from. It does not change, so several goroutines may use it.
type Loaded struct {
	Config Config

	file  string
	table []Option
	// origins are the strongest layers that say something, by path.
	origins map[string]*layer
	// contents are those of its file and the files of secrets.
	contents Contents
	doubts   []error
}

// Doubts are variables that are nobody's here, and whose names are those of options but for a letter or two.
func (l *Loaded) Doubts() []error { return l.doubts }

// Load reads a configuration. Its error holds everything that is wrong with any source, also with what a stronger one
// overrules: unknown keys, wrong types, values out of range, and values that contradict each other.
func Load(s Sources) (*Loaded, error) {
	l := &Loaded{origins: map[string]*layer{}, file: s.File}
	if l.file == "" {
		l.file = variable(s.Environ, FileVariable)
	}
	table := options()
	var layers []*layer
	var bad []error
	add := func(layer *layer, err error) {
		bad = append(bad, err)
		if layer != nil {
			l.doubts = append(l.doubts, layer.doubts...)
			layers = append(layers, layer)
		}
	}
	var text []byte
	if l.file != "" {
		var err error
		text, err = readAll(l.file)
		add(decode(l.file, text, err, table))
	}
	add(readEnvironment(s.Environ, table))
	add(readFlags(s, table))
	bad = append(bad, l.apply(layers), l.together())
	l.contents = contentsOf(l.liveFiles())
	if l.file != "" {
		l.contents[l.file] = sha256.Sum256(text)
	}
	return l, errors.Join(bad...)
}

// liveFiles are the files whose contents a process that runs reads anew.
func (l *Loaded) liveFiles() []string {
	c := &l.Config
	all := []string{
		c.Redis.PasswordFile, c.Worker.Deliver.SecretFile, c.Scheduler.Notify.SecretFile,
		c.Serve.Credentials.KeysFile, c.Serve.Credentials.JWKSFile, c.Serve.TLS.CertFile, c.Serve.TLS.KeyFile, c.Serve.RLS.MappingFile,
	}
	return slices.DeleteFunc(all, func(name string) bool { return name == "" })
}

// variable returns the value of a variable, empty if there is none.
func variable(environ []string, name string) (value string) {
	for _, entry := range environ {
		if text, ok := strings.CutPrefix(entry, name+"="); ok {
			value = text
		}
	}
	return value
}

// apply puts what the layers say over the defaults, the weakest layer first.
func (l *Loaded) apply(layers []*layer) error {
	names := downstreams(layers)
	l.table = options(names...)
	byPath := make(map[string]*Option, len(l.table))
	var bad []error
	for i := range l.table {
		o := &l.table[i]
		byPath[o.Path] = o
		if o.Default != "" {
			o.read(&l.Config, o.Default, true)
		}
	}
	// A downstream's breaker is that of all, and what is said of it in particular.
	for _, own := range []bool{false, true} {
		if own {
			l.copyBreakers(names)
		}
		for _, layer := range layers {
			for _, path := range slices.Sorted(maps.Keys(layer.values)) {
				if strings.HasPrefix(path, breakersPath+delimiter) == own {
					bad = append(bad, l.set(layer, byPath, path))
				}
			}
		}
	}
	return errors.Join(bad...)
}

// set puts one value in its place.
func (l *Loaded) set(from *layer, byPath map[string]*Option, path string) error {
	raw, o := from.values[path], byPath[path]
	if o == nil {
		if raw == nil && l.isSection(path) {
			return nil // A section with nothing in it.
		}
		return from.fail(&UnknownKeyError{Key: from.field(path), Near: nearest(path, slices.Collect(maps.Keys(byPath)))})
	}
	if raw == nil {
		return nil
	}
	text := from.source != File
	values := o.read(&l.Config, raw, text)
	if len(values) == 0 {
		l.origins[path] = from
	}
	var bad []error
	for _, value := range values {
		if o.Secret() {
			value = "(not shown)"
		}
		bad = append(bad, from.fail(&admission.FieldError{Field: from.field(path), Value: value, Allowed: o.form(raw, text) + o.limits()}))
	}
	return errors.Join(bad...)
}

// limits says what is allowed, and of which type where that does not show.
func (o *Option) limits() string {
	switch o.Type() {
	case "whole number", "number", "duration":
		return o.Allowed() + " (" + o.Type() + ")"
	}
	return o.Allowed()
}

func (l *Loaded) isSection(path string) bool {
	return path == breakersPath || slices.ContainsFunc(l.table, func(o Option) bool { return strings.HasPrefix(o.Path, path+delimiter) })
}

// downstreams are those of which some layer says something that is an option of a breaker.
func downstreams(layers []*layer) []string {
	names := map[string]bool{}
	for _, layer := range layers {
		for path := range layer.values {
			below, ok := strings.CutPrefix(path, breakersPath+delimiter)
			if end := strings.LastIndex(below, delimiter); ok && end > 0 && admission.ValidateName("downstream", below[:end], false) == nil {
				names[below[:end]] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// source returns the source of an option's value.
func (l *Loaded) source(path string) Source {
	if from := l.origins[path]; from != nil {
		return from.source
	}
	return Default
}

// option returns the option of a path that is in the table.
func (l *Loaded) option(path string) *Option {
	return &l.table[slices.IndexFunc(l.table, func(o Option) bool { return o.Path == path })]
}

// Given says whether any source set an option.
func (l *Loaded) Given(path string) bool { return l.source(path) != Default }

// OnlyFlags says whether what is wrong with a command's configuration is wrong with its line: all else that is said has no fault.
func OnlyFlags(s Sources) bool {
	s.Flags, s.Set = nil, nil
	_, err := Load(s)
	return err == nil
}

// Field names an option in an error, by what set it, and one that nothing has set by its flag too.
func (l *Loaded) Field(path string) string {
	if from := l.origins[path]; from != nil {
		return from.field(path)
	}
	for i := range l.table {
		if o := &l.table[i]; o.Path == path && o.Flag != "" {
			return path + " (--" + o.Flag + ")"
		}
	}
	return path
}

// Contents are those of the files that the configuration comes from, secrets among them, when Load saw them.
func (l *Loaded) Contents() Contents { return maps.Clone(l.contents) }
