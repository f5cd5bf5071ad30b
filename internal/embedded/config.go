package embedded

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisclient"
)

// Config says which store to open. Its zero value opens a private one.
type Config struct {
	// Addr is redis://user:password@host:port/db, rediss:// for TLS, host:port, redis-sentinel:// or redis-cluster:// (see
	// redisclient.Parse and ParseCluster). Empty means a private store.
	Addr string
	// Username and Password win over those of Addr. They mean nothing to a private store.
	Username string
	Password string
	// TLS wins over what an address at rediss:// means by default; its ServerName is the host's unless set. It is for such an
	// address alone, or one at rediss-sentinel:// or rediss-cluster://.
	TLS *tls.Config
	// PoolSize is the largest number of connections of a client; 0 means redisclient.DefaultPoolSize.
	PoolSize int
	// Log takes the one line that says that a private store is in use; nil means standard error.
	Log io.Writer
}

// AddressError is an address that cannot be understood. It never holds the address: there may be a password in it,
// and in a malformed one nobody knows where.
type AddressError struct {
	// Problem says what is wrong, without quoting.
	Problem string
}

// Error says what is wrong and how an address is written.
func (e *AddressError) Error() string {
	return "redis address " + e.Problem + "; write redis://user:password@host:port/db (rediss:// for TLS; " +
		"percent-encode special characters of the password), host:port, " +
		"redis-sentinel://user:password@host:port,host:port/db?master=NAME, or redis-cluster://user:password@host:port,host:port"
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = os.Stderr
	}
	return c
}

func (c Config) validate() error {
	if c.PoolSize < 0 {
		return fmt.Errorf("invalid PoolSize %d: allowed is 0 or more", c.PoolSize)
	}
	return nil
}

// Validate reports what Open would refuse before it calls anybody. Nothing of the address is quoted.
func (c Config) Validate() error {
	if c.Addr == "" {
		return c.validate()
	}
	_, err := c.address()
	return errors.Join(c.validate(), err)
}

// address is where a store is: the options of a client, and the Sentinels that are to be asked or the nodes of the cluster, if
// it is not one Redis.
type address struct {
	options  *redis.Options
	sentinel *redisclient.Sentinel
	nodes    []string
}

func (a address) client() redis.UniversalClient {
	if a.nodes != nil {
		return redisclient.NewCluster(a.options, a.nodes)
	}
	return redisclient.New(a.options, a.sentinel)
}

// address returns where the store is. Errors quote nothing of Addr.
func (c Config) address() (address, error) {
	at, err := parseAddress(c.Addr)
	if err != nil {
		return address{}, err
	}
	options := at.options
	if c.Username != "" {
		options.Username = c.Username
	}
	if c.Password != "" {
		options.Password = c.Password
	}
	if c.PoolSize != 0 {
		options.PoolSize = c.PoolSize
	}
	if err := redisclient.Secure(options, c.TLS); err != nil {
		return address{}, &AddressError{Problem: err.Error()}
	}
	return at, nil
}

func parseAddress(addr string) (at address, err error) {
	switch {
	case addr == "memory:", strings.HasPrefix(addr, "memory://"):
		return at, &AddressError{Problem: "is that of a store in memory, which a program has alone and no command can share"}
	case redisclient.IsCluster(addr):
		at.options, at.nodes, err = redisclient.ParseCluster(addr)
	case redisclient.IsSentinel(addr), !strings.Contains(addr, "://"):
		at.options, at.sentinel, err = redisclient.Parse(addr)
	default:
		if err := checkURL(addr); err != nil {
			return at, err
		}
		at.options, _, err = redisclient.Parse(addr)
	}
	if err != nil {
		return at, &AddressError{Problem: err.Error()}
	}
	return at, nil
}

// checkURL says more about the address of a single Redis than the client does.
func checkURL(addr string) error {
	parsed, err := url.Parse(addr)
	if err != nil {
		return &AddressError{Problem: "is not a URL"}
	}
	if parsed.Scheme != "redis" && parsed.Scheme != "rediss" {
		return &AddressError{Problem: "has an unknown scheme"}
	}
	// A slash, a question mark or a hash in a password that is not encoded ends the host early and leaves the rest
	// of the password, with the '@', in the path, the query or the fragment.
	if strings.Contains(parsed.Path+parsed.RawQuery+parsed.Fragment, "@") {
		return &AddressError{Problem: "has an '@' after its host"}
	}
	if parsed.Hostname() == "" {
		return &AddressError{Problem: "names no host"}
	}
	return nil
}
