package config

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestTLS opens a real Redis that wants a certificate and speaks TLS 1.2 alone.
func TestTLS(t *testing.T) {
	t.Parallel()
	certificate, key := writePair(t, t.TempDir())
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(listener.Addr().String(), ":")
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	redistest.Start(t, redistest.Options{Args: []string{
		"--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", certificate, "--tls-protocols", "TLSv1.2",
	}})
	const ok = ""
	for set, want := range map[string]string{
		"ca_file=CERT cert_file=CERT key_file=KEY":                               ok,
		"ca_file=CERT cert_file=CERT key_file=KEY min_version=1.3":               "protocol version",
		"ca_file=CERT cert_file=CERT key_file=KEY server_name=elsewhere.example": "wanted to match elsewhere.example",
		"ca_file=CERT":                            "handshake failure",
		"cert_file=CERT key_file=KEY":             "its certificate is not trusted",
		"ca_file=KEY cert_file=CERT key_file=KEY": "allowed is a file with certificates in PEM",
		"ca_file=CERT cert_file=KEY key_file=KEY": "read redis.tls.cert_file and redis.tls.key_file",
	} {
		sources := Sources{Set: []string{"redis.url=rediss://127.0.0.1:" + port + "?dial_timeout=1m&read_timeout=1m"}}
		for one := range strings.FieldsSeq(strings.NewReplacer("CERT", certificate, "KEY", key).Replace(set)) {
			sources.Set = append(sources.Set, "redis.tls."+one)
		}
		l, err := Load(sources)
		if err != nil {
			t.Errorf("%s: %v", set, err)
			continue
		}
		store, err := l.Store(io.Discard)
		if err == nil {
			var opened *embedded.Store
			if opened, err = embedded.Open(t.Context(), store); err == nil {
				_ = opened.Close()
			}
		}
		if (err == nil) != (want == ok) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", set, err, want)
		}
	}
	first := redistest.Start(t, redistest.Options{})
	for name, held := range map[string]int64{"127.0.0.1": 0, "localhost": -1} { // The certificate is of the address.
		l, err := Load(Sources{Set: []string{
			"redis.url=" + first.URL(), "redis.spill_url=rediss://" + name + ":" + port + "?dial_timeout=1m&read_timeout=1m", "redis.tls.ca_file=" + certificate, "redis.tls.cert_file=" + certificate,
			"redis.tls.key_file=" + key, "redis.tls.server_name=elsewhere.example",
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Store(io.Discard); err != nil {
			t.Fatal(err)
		}
		store, err := redisstore.Connect(t.Context(), first.URL(), redisstore.Config(l.Config.Redis.Store))
		if err != nil {
			t.Fatal(err)
		}
		if state, err := store.Partitions()[0].SpillState(t.Context()); err != nil || state.Held != held {
			t.Errorf("of the second Redis at %s is known: %+v, %v; want Held %d", name, state, err, held)
		}
		_ = store.Close()
	}
	plain := embedded.Config{Addr: "127.0.0.1:1"}
	l, err := Load(Sources{Set: []string{"redis.url=rediss://h:1"}})
	if err != nil {
		t.Fatal(err)
	}
	secure, err := l.Store(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	plain.TLS = secure.TLS
	if err := plain.Validate(); err == nil || !strings.Contains(err.Error(), "is not for TLS") {
		t.Errorf("a TLS without an address for it: %v", err)
	}
}
