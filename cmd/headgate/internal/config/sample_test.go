package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// downstream is one whose name holds what separates paths.
const downstream = "api.example.com:443"

// samples are values of an option that differ from its default, as text: the smallest and the largest, and more.
func samples(t *testing.T, o *Option) (all []string) {
	t.Helper()
	low, high, ranged := strings.Cut(o.Allowed(), " to ")
	switch {
	case o.Type() == "bool":
		all = []string{"true", "false"}
	case o.Type() == "number":
		all = []string{"0.25", "0.75", "1"}
	case o.Type() == "whole number" && ranged:
		n, err := strconv.Atoi(low)
		most, no := strconv.Atoi(high)
		if err != nil || no != nil {
			t.Fatalf("%s: bounds %q", o.Path, o.Allowed())
		}
		all = []string{low, strconv.Itoa((n + most) / 2), high}
	case strings.HasSuffix(o.Path, ".open_base"): // Below what the largest cooldown may be.
		all = []string{"1ms", "2s", "9m0s"}
	case strings.HasSuffix(o.Path, ".open_max"):
		all = []string{"10m0s", "1h0m0s", "24h0m0s"}
	case o.Type() == "duration" && ranged:
		d, err := time.ParseDuration(low)
		most, no := time.ParseDuration(high)
		if err != nil || no != nil {
			t.Fatalf("%s: bounds %q", o.Path, o.Allowed())
		}
		all = []string{d.String(), ((d + most) / 2).String(), most.String()}
	case strings.HasPrefix(o.Allowed(), "one of "):
		all = strings.Split(strings.TrimPrefix(o.Allowed(), "one of "), ", ")
	case o.Path == "worker.queues":
		all = []string{"mail=3,hook=1", "report=1000"}
	case o.Path == "worker.types":
		all = []string{"a,b", "c"}
	case o.Path == "serve.limiter.outage_at":
		all = []string{"acme=open,acme:mail=closed", "global=grace"}
	case o.Path == pathAuthz, o.Path == pathRLS:
		all = []string{"127.0.0.1:9081", "localhost:9082"}
	case o.Path == "serve.authz.tenant":
		all = []string{"header:X-API-Key,ip", "fixed:acme"}
	case o.Path == "serve.authz.routes":
		all = []string{`["GET /orders/{id}","/a,b"]`, `["/"]`}
	case o.Path == "serve.authz.trusted":
		all = []string{"10.0.0.0/8,2001:db8::1/128", "192.0.2.1/32"}
	case o.Path == "serve.allow":
		all = []string{"10.0.0.0/8,2001:db8::1/128", "192.0.2.1/32"}
	case o.Path == PathCommand:
		all = []string{`["true","a,b"]`, `["false"]`}
	case o.Path == PathURL:
		all = []string{"rediss://one:6379", "rediss://ada:sesame@two:6380/1"}
	case o.Path == PathMetrics, o.Path == pathAddress:
		all = []string{"127.0.0.1:9091", ":9091"}
	case o.Path == pathTraces:
		all = []string{"https://example.com:4318/sesame", "https://example.org"}
	case o.Path == PathDeliver, o.Path == PathNotify:
		all = []string{"https://example.com/sesame", "http://example.org"}
	default:
		all = []string{"one", "two"}
	}
	different := all[:0]
	for _, text := range all {
		if text != o.Default {
			different = append(different, text)
		}
	}
	return different
}

// plainOf is a value as a file has it.
func plainOf(t rapid.TB, o *Option, text string) any {
	t.Helper()
	var c Config
	c.Worker.Breakers = emptyBreakers()
	if bad := o.read(&c, text, true); bad != nil {
		t.Fatalf("%s: %q is a sample and not allowed", o.Path, text)
	}
	return o.plain(&c)
}

// writeFile writes values by path as a file of a format, and returns its name.
func writeFile(t rapid.TB, dir, extension string, values map[string]any) string {
	t.Helper()
	nested := map[string]any{}
	for path, value := range values {
		sections := sectionsOf(path)
		at := nested
		for _, section := range sections[:len(sections)-1] {
			below, ok := at[section].(map[string]any)
			if !ok {
				below = map[string]any{}
				at[section] = below
			}
			at = below
		}
		at[sections[len(sections)-1]] = value
	}
	text, err := parsers[extension].Marshal(nested)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "headgate"+extension)
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// variables writes values as an environment.
func variables(table []Option, values map[string]string) (environ []string) {
	own := map[string]string{}
	for i := range table {
		o := &table[i]
		text, ok := values[o.Path]
		switch {
		case !ok:
		case o.Env() != "":
			environ = append(environ, o.Env()+"="+text)
		default:
			own[o.Path[strings.LastIndex(o.Path, delimiter)+1:]] = text
		}
	}
	if len(own) > 0 {
		environ = append(environ, fmt.Sprintf("HEADGATE_WORKER_BREAKERS={%q: %s}", downstream, quoteJSON(own)))
	}
	return environ
}

// find returns an option of a loaded configuration.
func find(t rapid.TB, l *Loaded, path string) *Option {
	t.Helper()
	for i := range l.table {
		if l.table[i].Path == path {
			return &l.table[i]
		}
	}
	t.Fatalf("there is no option %s", path)
	return nil
}

// writeText writes a file and returns its name.
func writeText(t rapid.TB, dir, name, text string) string {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
