package serve_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/cmd/headgate/internal/serve"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// lines hands the lines of a log on.
type lines chan map[string]any

func (l lines) Write(line []byte) (int, error) {
	var event map[string]any
	if err := json.Unmarshal(line, &event); err != nil {
		return 0, err
	}
	l <- event
	return len(line), nil
}

// until returns the first event with a message.
func (l lines) until(t *testing.T, message string) map[string]any {
	t.Helper()
	soon := time.After(20 * time.Second)
	for {
		select {
		case event := <-l:
			if event["message"] == message {
				return event
			}
		case <-soon:
			t.Fatalf("no event says %q", message)
		}
	}
}

// start runs a server until the test ends.
func start(t *testing.T, config serve.Config) (address string, log lines, reload chan os.Signal) {
	t.Helper()
	store, err := lua.Open(t.Context(), redistest.Shared(t).Client(t), lua.Config{Prefix: redistest.Prefix(t)})
	must(t, err)
	log, reload = make(lines, 1000), make(chan os.Signal)
	config.Address = "127.0.0.1:0"
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve.Run(ctx, store, zerolog.New(log), zerolog.Nop(), config, reload) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	address, _ = log.until(t, "admin API listens")["address"].(string)
	return address, log, reload
}

func get(t *testing.T, client *http.Client, url, key string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+key)
	response, err := client.Do(r)
	must(t, err)
	must(t, response.Body.Close())
	return response.StatusCode
}

func newKey(t *testing.T) (key, line string) {
	t.Helper()
	key, line, err := access.NewKey(access.Principal{Name: "ops", Role: access.Admin})
	must(t, err)
	return key, line
}

func write(t *testing.T, name, text string) {
	t.Helper()
	must(t, os.WriteFile(name, []byte(text), 0o600))
}

func TestKeysRotateWithoutARestart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys")
	old, oldLine := newKey(t)
	fresh, freshLine := newKey(t)
	write(t, file, oldLine)
	address, log, reload := start(t, serve.Config{KeysFile: file})
	for _, step := range []struct {
		text, message string
		old, fresh    int
	}{
		{oldLine, "read again", 200, 401},
		{oldLine + "\n" + freshLine, "read again", 200, 200},
		{"broken", "not read again; what was in force stays", 200, 200},
		{"# nobody", "not read again; what was in force stays", 200, 200},
		{freshLine, "read again", 401, 200},
	} {
		write(t, file, step.text)
		reload <- syscall.SIGHUP
		log.until(t, step.message)
		if a, b := get(t, http.DefaultClient, address+"/api/v1/workers", old), get(t, http.DefaultClient, address+"/api/v1/workers", fresh); a != step.old || b != step.fresh {
			t.Errorf("after %q: the old key gets %d, the new one %d", step.text, a, b)
		}
	}
}

// certify writes a certificate that signs itself.
func certify(t *testing.T, dir string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	write(t, filepath.Join(dir, "cert"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, filepath.Join(dir, "key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
}

func TestCertificatesRotateWithoutARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, line := newKey(t)
	write(t, filepath.Join(dir, "keys"), line)
	certify(t, dir, 1)
	address, log, reload := start(t, serve.Config{
		KeysFile: filepath.Join(dir, "keys"), CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key"), MinTLS: "1.3",
	})
	shown := func() (serial int64, version uint16) {
		dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // The test looks at the certificate itself.
		connection, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(address, "https://"))
		must(t, err)
		defer func() { _ = connection.Close() }()
		state := connection.(*tls.Conn).ConnectionState()
		return state.PeerCertificates[0].SerialNumber.Int64(), state.Version
	}
	if serial, version := shown(); serial != 1 || version != tls.VersionTLS13 {
		t.Errorf("certificate %d by version %x", serial, version)
	}
	certify(t, dir, 2)
	reload <- syscall.SIGHUP
	log.until(t, "read again")
	if serial, _ := shown(); serial != 2 {
		t.Errorf("certificate %d after it was read again", serial)
	}
	if !strings.HasPrefix(address, "https://") {
		t.Error(address)
	}
}

func TestAServerThatNobodyOrEverybodyCouldCallDoesNotStart(t *testing.T) {
	t.Parallel()
	store, err := lua.Open(t.Context(), redistest.Shared(t).Client(t), lua.Config{Prefix: redistest.Prefix(t)})
	must(t, err)
	for name, row := range map[string]struct {
		config serve.Config
		want   string
	}{
		"no credentials":           {serve.Config{}, "headgate key new"},
		"open to the network":      {serve.Config{NoAuth: true, Address: ":0"}, "only with an --address on loopback"},
		"open to a name":           {serve.Config{NoAuth: true, Address: "example.com:1"}, "only with an --address on loopback"},
		"open and closed":          {serve.Config{NoAuth: true, KeysFile: "keys"}, "only without --keys-file"},
		"a key without its other":  {serve.Config{KeyFile: "key"}, "--tls-key"},
		"clients but no server":    {serve.Config{ClientCAFile: "ca"}, "--tls-client-ca"},
		"an old version of TLS":    {serve.Config{MinTLS: "1.1"}, "allowed is 1.2 or 1.3"},
		"a file that is not there": {serve.Config{KeysFile: "/nowhere/keys"}, "read keys: open /nowhere/keys"},
		"a bad network":            {serve.Config{Allow: []string{"10.0.0.0/8", "ten"}}, `invalid --allow "ten"`},
		"numbers":                  {serve.Config{Rate: -1, Burst: -1, MaxBody: 1, Leeway: -1, Timeout: -1}, "--admin-burst"},
	} {
		var log bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // One that starts ends by it, without an error.
		err := serve.Run(ctx, store, zerolog.New(&log), zerolog.Nop(), row.config, nil)
		cancel()
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOpenOnLoopbackEverybodyIsAnAdmin(t *testing.T) {
	t.Parallel()
	address, log, _ := start(t, serve.Config{NoAuth: true})
	log.until(t, "everybody on this machine is an admin: --insecure-no-auth")
	if got := get(t, http.DefaultClient, address+"/api/v1/workers", ""); got != http.StatusOK {
		t.Errorf("%d", got)
	}
}
