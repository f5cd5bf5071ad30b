package serve

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/headgate/headgate/admin/access"
)

// maxFile is above what any file here takes, in bytes.
const maxFile = 1 << 20

// readFile reads a file as a whole.
func readFile(what, name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxFile))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return text, nil
}

// either reads a file, or a variable where no file is named.
func either(what, name, variable string) ([]byte, error) {
	if name != "" {
		return readFile(what, name)
	}
	return []byte(os.Getenv(variable)), nil
}

// credentials reads what is taken.
func (c Config) credentials() (access.Credentials, error) {
	if c.NoAuth {
		return access.Credentials{}, nil
	}
	var all access.Credentials
	lines, keysErr := either("keys", c.KeysFile, KeysVariable)
	if keysErr == nil {
		all.Keys, keysErr = access.ParseKeys(string(lines))
	}
	jwks, tokensErr := either("jwks", c.JWKSFile, JWKSVariable)
	if tokensErr == nil && len(jwks) > 0 {
		all.Tokens, tokensErr = access.NewTokens(access.TokenConfig{JWKS: jwks, Issuer: c.Issuer, Audience: c.Audience, Leeway: c.Leeway})
	}
	return all, errors.Join(keysErr, tokensErr)
}

// certificate is what a server shows; it is read again at SIGHUP.
type certificate struct {
	config  Config
	current atomic.Pointer[tls.Certificate]
}

func (c *certificate) load() error {
	pair, err := tls.LoadX509KeyPair(c.config.CertFile, c.config.KeyFile)
	if err != nil {
		return fmt.Errorf("read certificate: %w", err)
	}
	c.current.Store(&pair)
	return nil
}

// settings returns the settings for TLS; nil without a certificate.
func (c *certificate) settings() (*tls.Config, error) {
	if c.config.CertFile == "" {
		return nil, nil //nolint:nilnil // No TLS is what was asked for.
	}
	if err := c.load(); err != nil {
		return nil, err
	}
	settings := &tls.Config{
		MinVersion:     tlsVersions[c.config.MinTLS],
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
	if c.config.ClientCAFile == "" {
		return settings, nil
	}
	text, err := readFile("client CA", c.config.ClientCAFile)
	if err != nil {
		return nil, err
	}
	settings.ClientCAs = x509.NewCertPool()
	if !settings.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read client CA: %s holds no certificate in PEM", c.config.ClientCAFile)
	}
	return settings, nil
}
