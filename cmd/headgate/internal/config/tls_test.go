package config

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/redistest"
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
