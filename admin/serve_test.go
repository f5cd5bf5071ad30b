package admin_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/admission"
)

// listen serves a plant on loopback until the test ends.
func (p *plant) listen(ctx context.Context) (address string, ended chan error) {
	p.tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	must(p.tb, err)
	ended = make(chan error, 1)
	go func() { ended <- p.server.Serve(ctx, listener) }()
	return listener.Addr().String(), ended
}

func TestCallsUnderWayAreFinishedAtTheEnd(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan struct{}), make(chan struct{})
	p := newPlant(t, func(c *admin.Config) {
		c.Enqueuer = odd{enqueue: func(ctx context.Context) (admission.Verdict, error) {
			close(begun)
			<-goOn
			return admission.Verdict{ID: "x", Decision: admission.Admitted, EstimatedWait: -1}, ctx.Err()
		}}
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	address, ended := p.listen(ctx)
	answered := make(chan int, 1)
	go func() {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/api/v1/jobs", strings.NewReader(someJob))
		if err != nil {
			answered <- 0
			return
		}
		r.Header.Set("Authorization", p.keys["operator"])
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			answered <- 0
			return
		}
		defer func() { _ = response.Body.Close() }()
		answered <- response.StatusCode
	}()
	<-begun
	stop()
	for { // It takes no more connections.
		connection, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			break
		}
		must(t, connection.Close())
	}
	select {
	case err := <-ended:
		t.Fatalf("it ended before the call: %v", err)
	default:
	}
	close(goOn)
	if status := <-answered; status != http.StatusCreated {
		t.Errorf("the call under way: %d", status)
	}
	must(t, <-ended)
}

func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	address, _ := p.listen(t.Context())
	for size, want := range map[int]int{1 << 10: http.StatusOK, 64 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/api/v1/health/live", http.NoBody)
		must(t, err)
		r.Header.Set("X-Filler", strings.Repeat("x", size))
		response, err := http.DefaultClient.Do(r)
		must(t, err)
		must(t, response.Body.Close())
		if response.StatusCode != want {
			t.Errorf("a header of %d bytes: %d", size, response.StatusCode)
		}
	}
}

// authority signs certificates.
type authority struct {
	tb   testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(tb, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(tb, err)
	cert, err := x509.ParseCertificate(der)
	must(tb, err)
	a := &authority{tb: tb, cert: cert, key: key, pool: x509.NewCertPool()}
	a.pool.AddCert(cert)
	return a
}

func (a *authority) issue(usage x509.ExtKeyUsage) tls.Certificate {
	a.tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(a.tb, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{usage}, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	must(a.tb, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestTLSAndClientCertificates(t *testing.T) {
	t.Parallel()
	ours, others := newAuthority(t), newAuthority(t)
	p := newPlant(t, func(c *admin.Config) {
		c.TLS = &tls.Config{Certificates: []tls.Certificate{ours.issue(x509.ExtKeyUsageServerAuth)}, ClientCAs: ours.pool, MinVersion: tls.VersionTLS13}
	})
	address, _ := p.listen(t.Context())
	get := func(settings *tls.Config) (*http.Response, error) {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: settings, ForceAttemptHTTP2: true}}
		defer client.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/api/v1/health/live", http.NoBody)
		must(t, err)
		response, err := client.Do(r)
		if err == nil {
			_, err = io.Copy(io.Discard, response.Body)
			must(t, response.Body.Close())
		}
		return response, err
	}
	good := []tls.Certificate{ours.issue(x509.ExtKeyUsageClientAuth)}
	response, err := get(&tls.Config{RootCAs: ours.pool, Certificates: good, MinVersion: tls.VersionTLS12})
	must(t, err)
	if response.StatusCode != http.StatusOK || response.TLS.Version != tls.VersionTLS13 || response.Header.Get("Strict-Transport-Security") == "" || response.ProtoMajor != 2 {
		t.Errorf("%d %v %v", response.StatusCode, response.Proto, response.Header)
	}
	for name, settings := range map[string]*tls.Config{
		"no certificate":    {RootCAs: ours.pool, MinVersion: tls.VersionTLS12},
		"another authority": {RootCAs: ours.pool, MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{others.issue(x509.ExtKeyUsageClientAuth)}},
		"not for clients":   {RootCAs: ours.pool, MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{ours.issue(x509.ExtKeyUsageServerAuth)}},
		"an older version":  {RootCAs: ours.pool, MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12, Certificates: good},
		"another server's":  {RootCAs: others.pool, MinVersion: tls.VersionTLS12, Certificates: good},
	} {
		if response, err := get(settings); err == nil {
			t.Errorf("%s: %d", name, response.StatusCode)
		}
	}
	plain, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/api/v1/health/live", http.NoBody)
	must(t, err)
	if response, err := http.DefaultClient.Do(plain); err == nil {
		must(t, response.Body.Close())
		if response.StatusCode == http.StatusOK {
			t.Error("it answers without TLS")
		}
	}
	if _, err := admin.New(admin.Config{TLS: &tls.Config{MinVersion: tls.VersionTLS11}}); err == nil || !strings.Contains(err.Error(), "TLS version") { //nolint:gosec // It is refused.
		t.Errorf("TLS 1.1: %v", err)
	}
}
