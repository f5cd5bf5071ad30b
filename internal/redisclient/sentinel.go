package redisclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
)

// The schemes of an address that Sentinels are asked for, and what stands for them in a URL of one Redis.
var sentinelSchemes = map[string]string{"redis-sentinel://": "redis://", "rediss-sentinel://": "rediss://"}

// defaultSentinelPort is that of a Sentinel whose address names none.
const defaultSentinelPort = "26379"

// Sentinel is a master by the name that Sentinels know it by.
type Sentinel struct {
	// Master is that name.
	Master string
	// Addrs are Sentinels, host:port each. The others are learned from the one that answers first.
	Addrs []string
	// Username and Password are those of the Sentinels themselves, empty for none.
	Username, Password string
}

// Parse reads an address: redis://, rediss://, unix:// or host:port of one Redis, or redis-sentinel:// (rediss-sentinel:// for TLS,
// with the Sentinels too) as in
//
//	redis-sentinel://user:password@host:port,host:port/db?master=NAME&sentinel_username=NAME&sentinel_password=WORD
//
// where user and password are Redis's. The Sentinel is nil for one Redis. The options have the settings of the house.
// Errors do not quote the address: there may be a password in it.
func Parse(address string) (*redis.Options, *Sentinel, error) {
	if !strings.Contains(address, "://") {
		options, err := parseHostPort(address)
		return options, nil, err
	}
	single := address
	var by *Sentinel
	if IsSentinel(address) {
		var err error
		if single, by, err = parseSentinel(address); err != nil {
			return nil, nil, err
		}
	}
	options, err := redis.ParseURL(single)
	if err != nil {
		return nil, nil, errors.New("has a scheme, a database or a parameter that is unknown or out of range")
	}
	if by != nil {
		options.Addr = by.Master + ", known to " + strings.Join(by.Addrs, ",")
		if options.TLSConfig != nil {
			options.TLSConfig.ServerName = "" // Each host's own: a master's is not a Sentinel's.
		}
	}
	Settings(options)
	return options, by, nil
}

// parseHostPort reads the address of one Redis without credentials.
func parseHostPort(address string) (*redis.Options, error) {
	if strings.Contains(address, "@") {
		return nil, errors.New("has credentials but no scheme")
	}
	if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
		return nil, errors.New("is neither a URL nor host:port")
	}
	options := &redis.Options{Addr: address}
	Settings(options)
	return options, nil
}

// IsSentinel reports whether an address is one that Sentinels are asked for.
func IsSentinel(address string) bool {
	scheme, _, found := strings.Cut(address, "://")
	_, known := sentinelSchemes[scheme+"://"]
	return found && known
}

// parseSentinel takes from an address what is about Sentinels. It returns the rest as the URL of a single Redis, at the
// first Sentinel's host. A URL has one host, so net/url does not see the others.
func parseSentinel(address string) (single string, by *Sentinel, err error) {
	scheme, rest, _ := strings.Cut(address, "://")
	authority, tail := rest, ""
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority, tail = rest[:end], rest[end:]
	}
	user, hosts := "", authority
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		user, hosts = authority[:at+1], authority[at+1:]
	}
	by = &Sentinel{}
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := hostPort(host)
		if err != nil {
			return "", nil, err
		}
		by.Addrs = append(by.Addrs, addr)
	}
	parsed, err := url.Parse(sentinelSchemes[scheme+"://"] + user + by.Addrs[0] + tail)
	if err != nil {
		return "", nil, errors.New("is not a URL")
	}
	query := parsed.Query()
	by.Master, by.Username, by.Password = query.Get("master"), query.Get("sentinel_username"), query.Get("sentinel_password")
	if by.Master == "" {
		return "", nil, errors.New("names no master: end it with ?master=NAME, the name that the Sentinels know it by")
	}
	for _, own := range []string{"master", "sentinel_username", "sentinel_password"} {
		query.Del(own)
	}
	parsed.RawQuery = query.Encode()
	return parsed.String(), by, nil
}

// hostPort completes the address of a Sentinel.
func hostPort(host string) (string, error) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), ""
	}
	if name == "" || strings.ContainsAny(name, "@ []") {
		return "", errors.New("has a Sentinel that is no host:port")
	}
	return net.JoinHostPort(name, cmp.Or(port, defaultSentinelPort)), nil
}

// Dial returns a client of the Redis, or of the cluster, at an address, which Parse or ParseCluster take, with settings of TLS as Secure has it.
// It sends nothing.
func Dial(address string, settings *tls.Config) (redis.UniversalClient, error) {
	if IsCluster(address) {
		options, addrs, err := ParseCluster(address)
		if err == nil {
			err = Secure(options, settings)
		}
		if err != nil {
			return nil, err
		}
		return NewCluster(options, addrs), nil
	}
	options, by, err := Parse(address)
	if err == nil {
		err = Secure(options, settings)
	}
	if err != nil {
		return nil, err
	}
	return New(options, by), nil
}

// Secure puts settings of TLS, nil for those that an address means by itself, into the options that were read from an address for TLS. Without
// a ServerName of their own the address' stays.
func Secure(options *redis.Options, settings *tls.Config) error {
	if settings == nil {
		return nil
	}
	if options.TLSConfig == nil {
		return errors.New("is not for TLS, and a TLS is configured")
	}
	name := options.TLSConfig.ServerName
	options.TLSConfig = settings.Clone()
	options.TLSConfig.ServerName = cmp.Or(settings.ServerName, name)
	return nil
}

// New returns a client with options, which Parse or Settings have made. By Sentinels it finds the master anew for each
// connection that it makes, and ends those to another when Sentinels say that the master has changed.
func New(options *redis.Options, by *Sentinel) *redis.Client {
	if by == nil {
		return redis.NewClient(options)
	}
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: by.Master, SentinelAddrs: by.Addrs, SentinelUsername: by.Username, SentinelPassword: by.Password,
		ClientName: options.ClientName, DB: options.DB, Username: options.Username, Password: options.Password, TLSConfig: options.TLSConfig,
		DialTimeout: options.DialTimeout, ReadTimeout: options.ReadTimeout, WriteTimeout: options.WriteTimeout,
		PoolTimeout: options.PoolTimeout, PoolSize: options.PoolSize, PoolFIFO: options.PoolFIFO, PipelinePoolSize: options.PipelinePoolSize,
		MinIdleConns: options.MinIdleConns, MaxIdleConns: options.MaxIdleConns, MaxActiveConns: options.MaxActiveConns,
		ConnMaxIdleTime: options.ConnMaxIdleTime, ConnMaxLifetime: options.ConnMaxLifetime,
		MaxRetries: options.MaxRetries, DialerRetries: options.DialerRetries, ContextTimeoutEnabled: options.ContextTimeoutEnabled,
		Protocol: options.Protocol, DisableIdentity: options.DisableIdentity,
	})
	client.AddHook(dialing{})
	return client
}

// dialing makes every failure on the way to a connection a failure to dial. A Sentinel's answer is none of Redis's: its
// nil, for a name that it does not know, would read as Redis's nil for a key.
type dialing struct{}

func (dialing) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, redis.Nil) {
			err = errors.New("the Sentinels know no master of that name")
		} else if _, reply := errors.AsType[redis.Error](err); reply {
			err = fmt.Errorf("ask the Sentinels: %s", err) //nolint:errorlint // On purpose: see above.
		}
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
}

func (dialing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (dialing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
