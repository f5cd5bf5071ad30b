package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/serve"
)

// Serve returns the configuration of a server of the admin API; it reads the files of keys and certificates.
func (l *Loaded) Serve() (serve.Config, error) {
	c := &l.Config.Serve
	config := serve.Config{
		Address: c.Address, NoAuth: c.Credentials.NoAuth, MinTLS: tlsVersions[c.TLS.MinVersion],
		MaxBody: int64(c.MaxBody), Timeout: c.Timeout, OldHeaders: c.OldHeaders,
		AdminLimit: admission.PerSecond(admission.Tokens(c.Rate), admission.Tokens(c.Burst)),
	}
	config.Allow = c.Allow
	config.Bounds = admin.Bounds{
		MaxConnections: c.Bounds.Connections, MaxConnectionsPerAddress: c.Bounds.PerAddress, MaxCalls: c.Bounds.Calls, MaxBytes: int64(c.Bounds.Bytes),
		TenantLimit: admission.PerSecond(admission.Tokens(c.Bounds.TenantRate), admission.Tokens(max(c.Bounds.TenantRate/4, leastBurst))), TenantBytes: int64(c.Bounds.TenantBytes),
	}
	config.Breaker, config.Breakers = l.breakers()
	var err, noPair, noAuthorities error
	config.Credentials, err = l.Credentials()
	if c.TLS.CertFile != "" && c.TLS.KeyFile != "" {
		config.Certificate, noPair = readPair("serve.tls", c.TLS.CertFile, c.TLS.KeyFile)
	}
	if c.TLS.ClientCAFile != "" {
		config.ClientCAs, noAuthorities = readAuthorities(pathClientCA, c.TLS.ClientCAFile)
	}
	return config, errors.Join(err, noPair, noAuthorities)
}

// leastBurst lets a call with as many questions as there may be through.
const leastBurst = 64

// Credentials reads what a server takes.
func (l *Loaded) Credentials() (all access.Credentials, err error) {
	c := &l.Config.Serve.Credentials
	lines, _, keysErr := l.secretOf(pathKeys, c.Keys, c.KeysFile)
	if keysErr == nil {
		all.Keys, keysErr = access.ParseKeys(lines)
		keysErr = within(l.field(pathKeys), keysErr)
	}
	set, given, tokensErr := l.secretOf(pathJWKS, c.JWKS, c.JWKSFile)
	if tokensErr == nil && given {
		all.Tokens, tokensErr = access.NewTokens(access.TokenConfig{JWKS: []byte(set), Issuer: c.Issuer, Audience: c.Audience, Leeway: c.Leeway, MaxLife: c.MaxLife})
		tokensErr = within("serve.tokens", tokensErr)
	}
	return all, errors.Join(keysErr, tokensErr)
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
			bad = append(bad, &admission.FieldError{Field: l.field(path), Value: fmt.Sprintf("%q", l.option(path).show(&l.Config)), Allowed: allowed})
		}
	}
	field((c.TLS.CertFile == "") == (c.TLS.KeyFile == ""), pathServeKey, "a file if and only if serve.tls.cert_file (--tls-cert) is one")
	field(c.TLS.ClientCAFile == "" || c.TLS.CertFile != "", pathClientCA, "a file only with serve.tls.cert_file (--tls-cert)")
	if c.Credentials.NoAuth {
		field(serve.Loopback(c.Address), pathNoAuth, "only with an address (--address) on loopback: anybody who reaches the server is an admin")
		none := !l.Given(pathKeys) && !l.Given(pathKeys+fileSuffix) && !l.Given(pathJWKS) && !l.Given(pathJWKS+fileSuffix)
		field(none, pathNoAuth, "only without keys (--keys-file) and a key set (--jwks-file), which it would leave without effect")
	}
	return bad
}

// readPair reads a certificate and its key.
func readPair(section, certificate, key string) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("read %s.cert_file and %s.key_file: %w", section, section, err)
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
