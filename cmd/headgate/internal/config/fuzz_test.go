package config

import (
	"strings"
	"testing"
)

// FuzzDecode reads any text as a file of any format: it is refused, or what it means can be printed and read again.
func FuzzDecode(f *testing.F) {
	formats := []string{".yaml", ".toml", ".json"}
	for _, text := range []string{
		"worker: {queues: [mail=3], breakers: {a.b: {window: 5s}}}\nlog: {level: debug}", "a: &a [*a]", "? [a]\n: b", "worker.lease: 1s\nworker:",
		mistaken,
	} {
		f.Add(uint8(0), []byte(text))
	}
	f.Add(uint8(1), []byte("[worker]\nlease = \"30s\"\nqueues = [\"mail=3\"]\nconcurrency = 5\ndate = 1979-05-27T07:32:00Z\n[worker.breakers.\"a.b\"]\nfailure_rate = 1"))
	f.Add(uint8(2), []byte(`{"worker": {"concurrency": 1e1, "exec": {"command": ["a", "b"]}}, "redis": {"url": "rediss://h:1", "tls": {"min_version": 1.3}}}`))
	f.Fuzz(func(t *testing.T, format uint8, text []byte) {
		extension := formats[int(format)%len(formats)]
		loaded, err := loadText(extension, text)
		if err != nil {
			return
		}
		var out strings.Builder
		if err := loaded.Print(&out); err != nil {
			t.Fatal(err)
		}
		again, err := loadText(".yaml", []byte(out.String()))
		if err != nil {
			t.Fatalf("what is printed is refused: %v\n%s", err, out.String())
		}
		for i := range loaded.table {
			o := &loaded.table[i]
			if strings.HasPrefix(o.Path, breakersPath) && !loaded.Given(o.Path) {
				continue // Of a downstream of which nothing is said, nothing is printed.
			}
			if got, want := o.show(&again.Config), o.show(&loaded.Config); got != want && !o.Secret() {
				t.Errorf("%s is %q, was %q:\n%s", o.Path, got, want, out.String())
			}
		}
	})
}

// loadText is Load for a file that is in memory.
func loadText(extension string, text []byte) (*Loaded, error) {
	l := &Loaded{origins: map[string]*layer{}}
	from, err := decode("headgate"+extension, text, nil, options())
	if err != nil {
		return nil, err
	}
	if err := l.apply([]*layer{from}); err != nil {
		return nil, err
	}
	return l, l.together()
}
