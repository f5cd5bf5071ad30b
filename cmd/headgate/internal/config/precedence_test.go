package config

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func emptyBreakers() map[string]*Breaker { return map[string]*Breaker{downstream: {}} }

// contradicts are options that are not drawn, because another one that is drawn would forbid them.
var contradicts = map[string]bool{
	PathCommand: true, "redis.tls.cert_file": true, "redis.tls.key_file": true,
	pathPassword + fileSuffix: true, pathSecret + fileSuffix: true, PathNotifySecret + fileSuffix: true, "scheduler.enabled": true,
	pathTraceHeaders + fileSuffix: true, pathKeys + fileSuffix: true, pathJWKS + fileSuffix: true, pathNoAuth: true, pathServeCert: true, pathServeKey: true, pathClientCA: true,
}

// said is a drawn configuration: what each source says of each option.
type said struct {
	sources Sources
	// want are the texts and sources that win, by path.
	want map[string]string
	from map[string]Source
}

// draw draws for each option a random set of the sources, and for each of these a value.
func draw(t *testing.T, r *rapid.T, dir string) said {
	t.Helper()
	table := options(downstream)
	s := said{want: map[string]string{}, from: map[string]Source{}}
	file, environment := map[string]any{}, map[string]string{}
	s.sources.Flags = map[string]any{}
	for i := range table {
		o := &table[i]
		if contradicts[o.Path] {
			continue
		}
		choose := rapid.SampledFrom(samples(t, o))
		in := rapid.IntRange(0, 7).Draw(r, "sources of "+o.Path)
		if in&1 != 0 {
			s.want[o.Path], s.from[o.Path] = choose.Draw(r, "file"), File
			file[o.Path] = plainOf(r, o, s.want[o.Path])
		}
		if in&2 != 0 {
			s.want[o.Path], s.from[o.Path] = choose.Draw(r, "variable"), Environment
			environment[o.Path] = s.want[o.Path]
		}
		switch {
		case in&4 == 0 || o.secret:
		case o.Flag != "":
			s.want[o.Path], s.from[o.Path] = choose.Draw(r, "flag"), Flag
			s.sources.Flags[o.Path] = s.want[o.Path]
			s.sources.Set = append(s.sources.Set, o.Path+"="+choose.Draw(r, "set")) // The flag's own wins.
		default:
			s.want[o.Path], s.from[o.Path] = choose.Draw(r, "set"), Flag
			s.sources.Set = append(s.sources.Set, o.Path+"="+s.want[o.Path])
		}
	}
	if _, given := s.want[PathURL]; !given {
		environment[PathURL], s.want[PathURL], s.from[PathURL] = "rediss://one:6379", "rediss://one:6379", Environment
	}
	// The numbers in JSON of variables are texts, which is what a breaker of a downstream reads there.
	s.sources.Environ = append(variables(table, environment), "HEADGATE_ID=a-job's", "HEADGATE_REDIS_PORT_6379_TCP=tcp://10.0.0.1:6379", "HOME=/")
	s.sources.File = writeFile(r, dir, rapid.SampledFrom([]string{".yaml", ".toml", ".json", ".yml"}).Draw(r, "format"), file)
	return s
}

func TestTheStrongestSourceWins(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		s := draw(t, r, dir)
		l, err := Load(s.sources)
		if err != nil {
			r.Fatal(err)
		}
		defaults, err := Load(Sources{})
		if err != nil {
			r.Fatal(err)
		}
		for i := range l.table {
			o := &l.table[i]
			want, given := s.want[o.Path]
			if !given {
				want = o.Default
				if below, ok := strings.CutPrefix(o.Path, breakersPath+"."+downstream); ok {
					all := find(r, l, "worker.breaker"+below)
					want = all.show(&l.Config)
				} else if want == "" {
					want = find(r, defaults, o.Path).show(&defaults.Config)
				}
			}
			if got := o.show(&l.Config); got != want || l.source(o.Path) != s.from[o.Path] {
				r.Fatalf("%s is %q from %d, want %q from %d", o.Path, got, l.source(o.Path), want, s.from[o.Path])
			}
		}
	})
}

func TestWhatIsPrintedCanBeLoadedAndMeansTheSame(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		l, err := Load(draw(t, r, dir).sources)
		if err != nil {
			r.Fatal(err)
		}
		var out strings.Builder
		if err := l.Print(&out); err != nil {
			r.Fatal(err)
		}
		if strings.Contains(out.String(), "sesame") {
			r.Fatalf("a secret is printed:\n%s", out.String())
		}
		again, err := Load(Sources{File: writeText(r, dir, "printed.yaml", out.String())})
		if err != nil {
			r.Fatalf("%v\n%s", err, out.String())
		}
		for i := range l.table {
			o := &l.table[i]
			if got, want := o.show(&again.Config), o.show(&l.Config); got != want && !o.Secret() {
				r.Fatalf("%s is %q, was %q:\n%s", o.Path, got, want, out.String())
			}
		}
	})
}

// TestTheLineIsAtFault where nothing else is, whatever else is said.
func TestTheLineIsAtFault(t *testing.T) {
	t.Parallel()
	good, bad := writeText(t, t.TempDir(), "good.yaml", "worker: {lease: 30s}"), writeText(t, t.TempDir(), "bad.yaml", "worker: {lease: 1}")
	wrong := []string{"worker.concurrency=0"}
	for name, row := range map[string]struct {
		sources Sources
		want    bool
	}{
		"alone":                       {Sources{Set: wrong}, true},
		"a flag":                      {Sources{Flags: map[string]any{"worker.concurrency": "0"}}, true},
		"beside a variable":           {Sources{Set: wrong, Environ: []string{"HEADGATE_WORKER_LEASE=30s"}}, true},
		"beside a file":               {Sources{Set: wrong, File: good}, true},
		"against a variable":          {Sources{Set: []string{"worker.deliver.command=true"}, Environ: []string{"HEADGATE_WORKER_DELIVER_URL=http://example.com"}}, true},
		"beside a wrong variable":     {Sources{Set: wrong, Environ: []string{"HEADGATE_WORKER_LEASE=1"}}, false},
		"beside a wrong file":         {Sources{Set: wrong, File: bad}, false},
		"a wrong file without a line": {Sources{File: bad}, false},
	} {
		if _, err := Load(row.sources); err == nil {
			t.Errorf("%s: there is no fault", name)
		}
		if got := OnlyFlags(row.sources); got != row.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
