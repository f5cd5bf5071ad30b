package config

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"flag"
	"fmt"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/breaker"
)

var update = flag.Bool("update", false, "write docs/CONFIG.md anew")

// keySet is one for tokens.
const keySet = `{"keys": [{"kty": "oct", "kid": "one", "alg": "HS256", "k": "c2VzYW1lIHNlc2FtZSBzZXNhbWUgc2VzYW1lIDEyMzQ"}]}`

// What makes processes of a configuration stands above this package; build_test.go brings it.
var (
	// Built returns everything that a configuration makes, as text.
	Built func(*Loaded) (string, error)
	// Check reports what would keep a process from starting.
	Check func(*Loaded) error
	// Refuses says whether the service of a section refuses a configuration.
	Refuses func(c Config, section string) bool
)

func built(t *testing.T, l *Loaded) string {
	t.Helper()
	text, err := Built(l)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// writePair writes a certificate that signs itself, and its key.
func writePair(t *testing.T, dir string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, Subject: pkix.Name{CommonName: "a test"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, bytes []byte) string {
		return writeText(t, dir, name, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes})))
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret)
}

// TestEveryOptionHasAnEffectFromEverySource sets one option after the other, by each source, and looks at what is built.
func TestEveryOptionHasAnEffectFromEverySource(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certificate, key := writePair(t, dir)
	_, line, err := access.NewKey(access.Principal{Name: "ops", Role: access.Admin})
	if err != nil {
		t.Fatal(err)
	}
	special := map[string]string{
		pathServeCert: certificate, pathServeKey: key, pathClientCA: certificate,
		pathKeys: line, pathKeys + fileSuffix: writeText(t, dir, "keys", line+"\n"),
		pathTraceHeaders: "Authorization: sesame", pathTraceHeaders + fileSuffix: writeText(t, dir, "headers", "Authorization: sesame\nX-Scope: acme\n"),
		pathMapping: writeText(t, dir, "mapping.yaml", "domains: {edge: {rules: [{match: [{key: k}], tenant_from: k}]}}"),
		pathJWKS:    keySet, pathJWKS + fileSuffix: writeText(t, dir, "jwks", keySet),
		"redis.tls.ca_file": certificate, "redis.tls.cert_file": certificate, "redis.tls.key_file": key,
		pathPassword + fileSuffix:     writeText(t, dir, "password", "sesame\n"),
		pathSecret:                    "whsec_c2VzYW1lIHNlc2FtZSBzZXNhbWUgc2VzYW1lIDEyMzQ=",
		pathSecret + fileSuffix:       writeText(t, dir, "secret", "sesame sesame sesame sesame\n"),
		PathNotifySecret:              "whsec_c2VzYW1lIHNlc2FtZSBzZXNhbWUgc2VzYW1lIDEyMzQ=",
		PathNotifySecret + fileSuffix: writeText(t, dir, "secret", "sesame sesame sesame sesame\n"),
	}
	// What an option needs to mean anything; it is there in what it is compared with, too.
	needs := func(path string) (values map[string]any) {
		values = map[string]any{breakersPath + "." + downstream + ".window": "11s"}
		if strings.HasPrefix(path, "redis.tls.") {
			values[PathURL] = "rediss://localhost:6379"
		}
		switch {
		case strings.HasPrefix(path, "serve.tls.") && path != pathServeCert && path != pathServeKey:
			values[pathServeCert], values[pathServeKey] = certificate, key
		case strings.HasPrefix(path, "serve.tokens."):
			values["serve.tokens.issuer"], values["serve.tokens.audience"] = "https://id.example.com", "headgate"
			if !strings.HasPrefix(path, pathJWKS) {
				values[pathJWKS] = keySet
			}
		}
		return values
	}
	companion := map[string]string{
		"redis.tls.cert_file": "redis.tls.key_file", "redis.tls.key_file": "redis.tls.cert_file",
		pathServeCert: pathServeKey, pathServeKey: pathServeCert,
	}
	table := options(downstream)
	for i := range table {
		o := &table[i]
		text := special[o.Path]
		if text == "" {
			all := samples(t, o)
			text = all[len(all)-1]
		}
		base := needs(o.Path)
		if o.Path == breakersPath+"."+downstream+".window" {
			delete(base, o.Path)
		}
		plain, err := Load(Sources{File: writeFile(t, dir, ".yaml", base)})
		if err != nil {
			t.Fatal(err)
		}
		if other := companion[o.Path]; other != "" {
			base[other] = special[other]
		}
		withIt := func(values map[string]any) string {
			all := maps.Clone(values)
			all[o.Path] = plainOf(t, o, text)
			return writeFile(t, dir, ".json", all)
		}
		ways := map[string]Sources{"file": {File: withIt(base)}}
		name := writeFile(t, dir, ".yaml", base)
		ways["variable"] = Sources{File: name, Environ: variables(table, map[string]string{o.Path: text})}
		if !o.secret {
			ways["set"] = Sources{File: name, Set: []string{o.Path + "=" + text}}
		}
		if o.Flag != "" {
			ways["flag"] = Sources{File: name, Flags: map[string]any{o.Path: text}}
		}
		for way, sources := range ways {
			l, err := Load(sources)
			if err != nil {
				t.Errorf("%s by %s: %v", o.Path, way, err)
				continue
			}
			if err := Check(l); err != nil && o.Path != PathURL {
				t.Errorf("%s by %s: %v", o.Path, way, err)
			}
			if got := o.show(&l.Config); got != text && !o.Secret() {
				t.Errorf("%s by %s is %q, want %q", o.Path, way, got, text)
			}
			if built(t, l) == built(t, plain) {
				t.Errorf("%s by %s has no effect", o.Path, way)
			}
		}
	}
}

// TestBoundsAreThoseOfThePackages holds the table equal to what the services themselves refuse.
func TestBoundsAreThoseOfThePackages(t *testing.T) {
	t.Parallel()
	jwks := writeText(t, t.TempDir(), "jwks", keySet)
	checked := 0
	table := options()
	for i := range table {
		o := &table[i]
		section, _, _ := strings.Cut(o.Path, delimiter)
		low, high, ranged := strings.Cut(o.Allowed(), " to ")
		if !ranged || o.Type() == "list" || section != "worker" && section != "scheduler" && section != "serve" {
			continue
		}
		for bound, step := range map[string]int{low: -1, high: 1} {
			l, err := Load(Sources{})
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(o.Path, "serve.tokens.") {
				l.Config.Serve.Credentials = Credentials{JWKSFile: jwks, Issuer: "i", Audience: "a", MaxLife: time.Hour}
			}
			if strings.HasSuffix(o.Path, "open_max") {
				l.Config.Worker.Breaker.OpenBase = time.Millisecond
			}
			if bad := o.read(&l.Config, bound, true); bad != nil || Refuses(l.Config, section) {
				t.Errorf("%s may not be %s, its bound", o.Path, bound)
			}
			var zero bool
			switch v := o.value.(type) {
			case kind[int]:
				*v.at(&l.Config) += step
				zero = *v.at(&l.Config) == 0
			case kind[time.Duration]:
				*v.at(&l.Config) += time.Duration(step)
				zero = *v.at(&l.Config) == 0
			default:
				continue
			}
			checked++
			if !zero && !Refuses(l.Config, section) { // A service takes zero for its default.
				t.Errorf("%s may be beyond %s", o.Path, bound)
			}
		}
	}
	if checked < 20 {
		t.Errorf("%d bounds were checked", checked)
	}
}

func TestDefaultsAreThoseOfThePackages(t *testing.T) {
	t.Parallel()
	l, err := Load(Sources{})
	if err != nil {
		t.Fatal(err)
	}
	own, err := breaker.NewAt(0, l.Config.Worker.Breaker.Config)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := breaker.NewAt(0, breaker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	got, want := own.Config(), theirs.Config()
	got.Rand, want.Rand = nil, nil
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("breakers are %+v, want %+v", got, want)
	}
}

func TestTheReferenceIsInTheDocs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := Reference(&out); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join("..", "..", "..", "..", "docs", "CONFIG.md")
	if *update {
		if err := os.WriteFile(name, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, out.Bytes()) {
		t.Errorf("%s is not what the table says: run this test with -update and read the diff", name)
	}
	table := options(anyName)
	for i := range table {
		o := &table[i]
		if !strings.Contains(string(text), "`"+o.Path+"`") || o.Doc == "" || (o.Default == "") == (o.Unset == "") {
			t.Errorf("%s is not documented", o.Path)
		}
		if o.Env() != "" && slices.ContainsFunc(table[:i], func(other Option) bool { return other.Env() == o.Env() }) {
			t.Errorf("%s has the variable of another", o.Path)
		}
	}
}
