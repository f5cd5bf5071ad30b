package serve

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/admin/access"
)

// DefaultAddress is where a server listens that nobody told where.
const DefaultAddress = "127.0.0.1:9080"

// The variables that stand in for files: the lines of a keys file, and a JSON Web Key Set.
const (
	KeysVariable = "HEADGATE_KEYS"
	JWKSVariable = "HEADGATE_JWKS"
)

// Config is what a server is told. It holds names of files, and no secret.
type Config struct {
	// Address is host:port; empty means DefaultAddress.
	Address string
	// CertFile and KeyFile are a certificate and its key in PEM: with them the server speaks https. Clients must show a
	// certificate of ClientCAFile where that is given. MinTLS is 1.2 or 1.3; empty means 1.2.
	CertFile, KeyFile, ClientCAFile, MinTLS string
	// KeysFile holds the lines of `headgate key new`; without it KeysVariable does.
	KeysFile string
	// JWKSFile holds the keys by which tokens are signed; without it JWKSVariable does. Issuer and Audience are those that
	// tokens must have, Leeway is how far the issuer's clock may be off.
	JWKSFile, Issuer, Audience string
	Leeway                     time.Duration
	// NoAuth takes everybody for an admin. It is refused on any address but a loopback one.
	NoAuth bool
	// Allow are the addresses and networks that may call; none means all.
	Allow []string
	// MaxBody, Timeout and OldHeaders are those of admin.Config.
	MaxBody    int64
	Timeout    time.Duration
	OldHeaders bool
	// Rate and Burst are the admin calls a second of one credential, 1 to 1e9; zero means the defaults of package admin.
	Rate, Burst int
}

func (c Config) withDefaults() Config {
	if c.Address == "" {
		c.Address = DefaultAddress
	}
	if c.MinTLS == "" {
		c.MinTLS = "1.2"
	}
	if c.Rate == 0 {
		c.Rate = admin.DefaultAdminRate
	}
	if c.Burst == 0 {
		c.Burst = admin.DefaultAdminBurst
	}
	return c
}

var tlsVersions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// Validate reports every bad field at once, by the names of the flags. Files are not read.
func (c Config) Validate() error {
	c = c.withDefaults()
	var bad []error
	field := func(ok bool, flag, value, allowed string) {
		if !ok {
			bad = append(bad, &headgate.FieldError{Field: "--" + flag, Value: value, Allowed: allowed})
		}
	}
	_, _, err := net.SplitHostPort(c.Address)
	field(err == nil, "address", strconv.Quote(c.Address), "host:port, such as "+DefaultAddress)
	field((c.CertFile == "") == (c.KeyFile == ""), "tls-key", strconv.Quote(c.KeyFile), "a file if and only if --tls-cert is one")
	field(c.ClientCAFile == "" || c.CertFile != "", "tls-client-ca", strconv.Quote(c.ClientCAFile), "a file only with --tls-cert")
	field(tlsVersions[c.MinTLS] != 0, "tls-min", strconv.Quote(c.MinTLS), "1.2 or 1.3")
	field(!c.NoAuth || loopback(c.Address), "insecure-no-auth", "true", "only with an --address on loopback: anybody who reaches the server is an admin")
	field(!c.NoAuth || c.KeysFile == "" && c.JWKSFile == "", "insecure-no-auth", "true", "only without --keys-file and --jwks-file, which it would leave without effect")
	field(c.Leeway >= 0 && c.Leeway <= access.MaxLeeway, "token-leeway", c.Leeway.String(), "0 to "+access.MaxLeeway.String())
	field(c.Timeout >= 0 && c.Timeout <= admin.MaxTimeout, "timeout", c.Timeout.String(), "1ms to "+admin.MaxTimeout.String())
	field(c.MaxBody == 0 || c.MaxBody >= 1<<10 && c.MaxBody <= admin.MaxMaxBody, "max-body", strconv.FormatInt(c.MaxBody, 10), fmt.Sprintf("1024 to %d bytes", admin.MaxMaxBody))
	field(c.Rate >= 1 && c.Rate <= int(headgate.MaxLimitTokens), "admin-rate", strconv.Itoa(c.Rate), "1 to 1000000000 calls a second")
	field(c.Burst >= 1 && c.Burst <= int(headgate.MaxLimitTokens), "admin-burst", strconv.Itoa(c.Burst), "1 to 1000000000 calls")
	_, err = c.prefixes()
	return errors.Join(append(bad, err)...)
}

// prefixes reads the allow list; a single address is a network of one.
func (c Config) prefixes() (all []netip.Prefix, err error) {
	var bad []error
	for _, text := range c.Allow {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			var single netip.Addr
			if single, err = netip.ParseAddr(text); err == nil {
				prefix, err = single.Prefix(single.BitLen())
			}
		}
		if err != nil {
			bad = append(bad, &headgate.FieldError{Field: "--allow", Value: strconv.Quote(text), Allowed: "addresses and networks, such as 10.0.0.0/8,2001:db8::1"})
		}
		all = append(all, prefix.Masked())
	}
	return all, errors.Join(bad...)
}

// loopback reports whether nobody outside the machine reaches an address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
