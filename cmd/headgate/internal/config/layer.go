package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	jsonparser "github.com/knadh/koanf/parsers/json"
	"github.com/knadh/koanf/parsers/toml/v2"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"

	"github.com/headgate/headgate/admission"
)

// Source is a kind of place that values come from, a stronger one being greater.
type Source int

// The sources.
const (
	Default Source = iota
	File
	Environment
	Flag
)

// layer is what one source says, by path.
type layer struct {
	source Source
	values map[string]any
	// names are what the values are called in the source, by path; those of a file are the paths.
	names map[string]string
	// whole are the paths of options: what is below one is a part of its value.
	whole map[string]bool
	// file is the file's name.
	file string
	// doubts are variables that may be mistyped.
	doubts []error
}

// place names what set a path, for people.
func (l *layer) place(path string) string {
	switch l.source {
	case File:
		return "file " + l.file
	case Environment, Flag:
		return l.names[path]
	case Default:
	}
	return "default"
}

// field names a path in an error.
func (l *layer) field(path string) string {
	name := l.names[path]
	switch {
	case l.source == Environment && name != "":
		return path + " (" + name + ")"
	case l.source == Flag && name != "":
		return name
	}
	return path
}

// fail adds to an error in which file it is.
func (l *layer) fail(err error) error {
	if l.source == File && err != nil {
		return fmt.Errorf("%s: %w", l.file, err)
	}
	return err
}

// delimiter is between the parts of a path.
const delimiter = "."

// maxFile is far above what a configuration takes.
const maxFile = 1 << 20

// parsers are the formats of files, by the ends of their names.
var parsers = map[string]koanf.Parser{
	".yaml": yaml.Parser(), ".yml": yaml.Parser(), ".toml": toml.Parser(), ".json": jsonparser.Parser(),
}

// readAll reads a file that is not too long.
func readAll(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	bytes, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(bytes) > maxFile {
		err = fmt.Errorf("%s is longer than 1 MiB", name)
	}
	return bytes, err
}

// decode reads the text of a file, in the format that its name tells, unless it could not be read.
func decode(name string, text []byte, err error, table []Option) (*layer, error) {
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	parser := parsers[strings.ToLower(filepath.Ext(name))]
	if parser == nil {
		return nil, &admission.FieldError{Field: "file", Value: fmt.Sprintf("%q", name), Allowed: "a name that ends with .yaml, .yml, .toml or .json"}
	}
	l := &layer{source: File, file: name, whole: make(map[string]bool, len(table))}
	for i := range table {
		l.whole[table[i].Path] = true
	}
	return l, l.fail(l.load(rawbytes.Provider(text), parser))
}

func (l *layer) load(provider koanf.Provider, parser koanf.Parser) error {
	k := koanf.New(delimiter)
	if err := k.Load(provider, parser); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	l.values = map[string]any{}
	return errors.Join(l.flatten("", k.Raw())...)
}

// flatten writes nested maps as paths, but for those that stand where an option has its value. Two ways to write one path, a: {b: 1} and a.b: 1, are one too many.
func (l *layer) flatten(above string, nested map[string]any) (bad []error) {
	for _, key := range slices.Sorted(maps.Keys(nested)) {
		path := above + key
		if below, ok := nested[key].(map[string]any); ok && !l.whole[path] {
			bad = append(bad, l.flatten(path+delimiter, below)...)
			continue
		}
		if _, twice := l.values[path]; twice {
			bad = append(bad, fmt.Errorf("%s is given twice", path))
		}
		l.values[path] = nested[key]
	}
	return bad
}

// serviceLink matches what Kubernetes makes of a service named headgate-redis: HEADGATE_REDIS_PORT_6379_TCP and others.
var serviceLink = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_.*)?$|_PORT$|_PORT_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?$`)

// readEnvironment returns the layer of the variables. Those that begin like a section and are no option's are mistakes;
// others may be anybody's, those of a job among them.
func readEnvironment(environ []string, table []Option) (*layer, error) {
	l := &layer{source: Environment, names: map[string]string{}}
	paths, sections := map[string]string{}, map[string]bool{}
	for i := range table {
		section, _, _ := strings.Cut(table[i].Path, delimiter)
		sections[variablePrefix+strings.ToUpper(section)] = true
		if name := table[i].Env(); name != "" {
			paths[name] = table[i].Path
		}
	}
	const breakers = variablePrefix + "WORKER_BREAKERS"
	var bad []error
	transform := func(name, value string) (string, any) {
		path, known := paths[name]
		section, _, _ := strings.Cut(strings.TrimPrefix(name, variablePrefix), "_")
		switch {
		// An empty variable is one that is not set, but for secrets: nobody should send unsigned by mistake.
		case name == FileVariable, value == "" && path != pathSecret && path != PathNotifySecret:
			return "", nil
		case name == breakers:
			var own map[string]any
			if err := json.Unmarshal([]byte(value), &own); err != nil {
				bad = append(bad, &admission.FieldError{Field: breakers, Value: "(no JSON object)", Allowed: `{"DOWNSTREAM": {"window": "5s"}}`})
			}
			return breakersPath, own
		case known:
			l.names[path] = name
			return path, value
		case sections[variablePrefix+section] && !serviceLink.MatchString(name):
			bad = append(bad, &UnknownKeyError{Key: name, Near: nearest(name, slices.Collect(maps.Keys(paths)))})
		default: // A mistake in the section itself, perhaps.
			if near := nearest(name, slices.Collect(maps.Keys(paths))); near != "" {
				l.doubts = append(l.doubts, &UnknownKeyError{Key: name, Near: near})
			}
		}
		return "", nil
	}
	provider := env.Provider("", env.Opt{Prefix: variablePrefix, TransformFunc: transform, EnvironFunc: func() []string { return environ }})
	err := l.load(provider, nil)
	for path := range l.values {
		if strings.HasPrefix(path, breakersPath+delimiter) {
			l.names[path] = breakers
		}
	}
	return l, errors.Join(append(bad, err)...)
}

// readFlags returns the layer of the flags, and of --set.
func readFlags(s Sources, table []Option) (*layer, error) {
	l := &layer{source: Flag, names: map[string]string{}}
	values := map[string]any{}
	var bad []error
	for _, text := range s.Set {
		path, value, ok := strings.Cut(text, "=")
		i := slices.IndexFunc(table, func(o Option) bool { return o.Path == path })
		switch {
		case !ok:
			bad = append(bad, &admission.FieldError{Field: "--set", Value: "(without =)", Allowed: "KEY=VALUE"})
		case i >= 0 && table[i].secret:
			bad = append(bad, &admission.FieldError{Field: "--set", Value: path, Allowed: "keys that are no secrets: those come from a file or the environment"})
		default:
			values[path], l.names[path] = value, "--set "+path
		}
	}
	for i := range table {
		if value, given := s.Flags[table[i].Path]; given {
			values[table[i].Path], l.names[table[i].Path] = value, "--"+table[i].Flag
		}
	}
	return l, errors.Join(append(bad, l.load(confmap.Provider(values, ""), nil))...)
}
