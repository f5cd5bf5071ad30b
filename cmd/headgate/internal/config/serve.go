package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admission"
)

// Credentials reads what a server takes.
func (l *Loaded) Credentials() (all access.Credentials, err error) {
	c := &l.Config.Serve.Credentials
	lines, keysErr := l.secretOf(pathKeys, c.Keys, c.KeysFile)
	if keysErr == nil {
		all.Keys, keysErr = access.ParseKeys(lines.Text)
		keysErr = within(lines.Name, keysErr)
	}
	set, tokensErr := l.secretOf(pathJWKS, c.JWKS, c.JWKSFile)
	switch {
	case tokensErr != nil:
	case set.Given:
		all.Tokens, tokensErr = access.NewTokens(access.TokenConfig{JWKS: []byte(set.Text), Issuer: c.Issuer, Audience: c.Audience, Leeway: c.Leeway, MaxLife: c.MaxLife})
		tokensErr = naming(tokensErr, set.Name, map[string]string{"issuer": l.Field(pathIssuer), "audience": l.Field(pathAudience), "jwks": set.Name})
	case keysErr == nil && lines.Given && all.Keys.Len() == 0:
		keysErr = &admission.FieldError{Field: lines.Name, Value: "(no keys)", Allowed: "one key or more, the lines that headgate key new prints: else nobody may call"}
	}
	return all, errors.Join(keysErr, tokensErr)
}

// ServeTLS reads the certificate that a server shows, nil for none, and the authorities one of which must have signed a client's. least is the
// oldest version that is spoken, as crypto/tls numbers it.
func (l *Loaded) ServeTLS() (certificate *tls.Certificate, clients *x509.CertPool, least uint16, err error) {
	c := &l.Config.Serve.TLS
	var noPair, noAuthorities error
	if c.CertFile != "" && c.KeyFile != "" {
		certificate, noPair = readPair(l.Field(pathServeCert), l.Field(pathServeKey), c.CertFile, c.KeyFile)
	}
	if c.ClientCAFile != "" {
		clients, noAuthorities = readAuthorities(l.Field(pathClientCA), c.ClientCAFile)
	}
	return certificate, clients, tlsVersions[c.MinVersion], errors.Join(noPair, noAuthorities)
}

// within says of which option or section an error tells.
func within(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", path, err)
}

// serveTogether reports what contradicts itself in what a server is told.
func (l *Loaded) serveTogether() (bad []error) {
	c := &l.Config.Serve
	field := func(ok bool, path, allowed string) {
		if !ok {
			bad = append(bad, &admission.FieldError{Field: l.Field(path), Value: fmt.Sprintf("%q", l.option(path).show(&l.Config)), Allowed: allowed})
		}
	}
	field((c.TLS.CertFile == "") == (c.TLS.KeyFile == ""), pathServeKey, "a file if and only if serve.tls.cert_file (--tls-cert) is one")
	field(c.TLS.ClientCAFile == "" || c.TLS.CertFile != "", pathClientCA, "a file only with serve.tls.cert_file (--tls-cert)")
	field(c.Authz.Listen == "" || Loopback(c.Authz.Listen) || c.TLS.ClientCAFile != "", pathAuthz, "an address on loopback, or one with serve.tls.client_ca_file: who reaches it is believed")
	field(c.RLS.Listen == "" || Loopback(c.RLS.Listen) || c.TLS.ClientCAFile != "", pathRLS, "an address on loopback, or one with serve.tls.client_ca_file: who reaches it is believed")
	if c.Credentials.NoAuth {
		field(Loopback(c.Address), pathNoAuth, "only with an address (--address) on loopback: anybody who reaches the server is an admin")
		none := !l.Given(pathKeys) && !l.Given(pathKeys+fileSuffix) && !l.Given(pathJWKS) && !l.Given(pathJWKS+fileSuffix)
		field(none, pathNoAuth, "only without keys (--keys-file) and a key set (--jwks-file), which it would leave without effect")
	}
	return bad
}

// readPair reads a certificate and its key.
func readPair(certificateField, keyField, certificate, key string) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("read %s and %s: %w", certificateField, keyField, err)
	}
	return &pair, nil
}

// readAuthorities reads the certificates of authorities.
func readAuthorities(path, file string) (*x509.CertPool, error) {
	bytes, err := readAll(file)
	if err != nil {
		return nil, within(path, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bytes) {
		return nil, &admission.FieldError{Field: path, Value: fmt.Sprintf("%q", file), Allowed: "a file with certificates in PEM"}
	}
	return pool, nil
}

// DefaultAddress is where a server listens that nobody told where.
const DefaultAddress = "127.0.0.1:9080"

// Loopback reports whether nobody outside the machine reaches an address.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
