package redisclient

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
)

// The schemes of an address of a Redis Cluster, and what stands for them in a URL of one Redis.
var clusterSchemes = map[string]string{"redis-cluster": "redis", "rediss-cluster": "rediss"}

// IsCluster reports whether an address is one of a Redis Cluster.
func IsCluster(address string) bool {
	scheme, _, found := strings.Cut(address, "://")
	return found && clusterSchemes[scheme] != ""
}

// ParseCluster reads the address of a Redis Cluster, redis-cluster:// or, for TLS, rediss-cluster://, as in
//
//	redis-cluster://user:password@host:port,host:port
//
// where the hosts are some of its nodes; the others are learned from the one that answers first. The options are those of
// each node, with the settings of the house. Errors do not quote the address: there may be a password in it.
func ParseCluster(address string) (*redis.Options, []string, error) {
	scheme, rest, _ := strings.Cut(address, "://")
	authority, tail := rest, ""
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority, tail = rest[:end], rest[end:]
	}
	user, hosts := "", authority
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		user, hosts = authority[:at+1], authority[at+1:]
	}
	addrs := strings.Split(hosts, ",")
	for _, addr := range addrs {
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" || strings.ContainsAny(addr, "@ ") {
			return nil, nil, errors.New("has a node that is no host:port")
		}
	}
	single := clusterSchemes[scheme] + "://" + user + addrs[0] + tail
	if _, err := url.Parse(single); err != nil {
		return nil, nil, errors.New("is not a URL")
	}
	options, err := redis.ParseURL(single)
	if err != nil {
		return nil, nil, errors.New("has a parameter that is unknown or out of range")
	}
	if options.DB != 0 {
		return nil, nil, errors.New("names a database: a cluster has only the first")
	}
	if options.TLSConfig != nil {
		options.TLSConfig.ServerName = "" // Each node's own.
	}
	options.Addr = strings.Join(addrs, ",")
	Settings(options)
	return options, addrs, nil
}

// NewCluster returns a client of a cluster, with the options of a node that ParseCluster or Settings have made. It is meant
// to be asked for the master of a key: by itself it follows no redirection and resends nothing. Whatever a node answers or
// fails with that may mean that slots have moved makes it look at the cluster anew, beside what it does every ten seconds.
func NewCluster(options *redis.Options, addrs []string) *redis.ClusterClient {
	var client *redis.ClusterClient
	newNode := func(o *redis.Options) *redis.Client {
		Settings(o)
		node := redis.NewClient(o)
		node.AddHook(watching{moved: func(ctx context.Context) { client.ReloadState(ctx) }})
		return node
	}
	client = redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addrs, NewClient: newNode, MaxRedirects: -1, DisableRoutingPolicies: true, Dialer: options.Dialer,
		ClientName: options.ClientName, Username: options.Username, Password: options.Password, TLSConfig: options.TLSConfig,
		DialTimeout: options.DialTimeout, ReadTimeout: options.ReadTimeout, WriteTimeout: options.WriteTimeout,
		PoolTimeout: options.PoolTimeout, PoolSize: options.PoolSize, PipelinePoolSize: options.PipelinePoolSize,
		ConnMaxIdleTime: options.ConnMaxIdleTime, MaxRetries: options.MaxRetries, DialerRetries: options.DialerRetries,
		ContextTimeoutEnabled: options.ContextTimeoutEnabled, Protocol: options.Protocol, DisableIdentity: options.DisableIdentity,
		MaintNotificationsConfig: options.MaintNotificationsConfig,
	})
	return client
}

// watching calls moved when a node's answer or failure may mean that a slot has another master.
type watching struct{ moved func(context.Context) }

func (w watching) see(ctx context.Context, err error) {
	if err == nil || errors.Is(err, redis.Nil) {
		return
	}
	_, reply := errors.AsType[redis.Error](err)
	for _, prefix := range []string{"MOVED ", "ASK ", "CLUSTERDOWN ", "READONLY ", "LOADING ", "MASTERDOWN "} {
		reply = reply && !redis.HasErrorPrefix(err, prefix)
	}
	if !reply {
		w.moved(ctx)
	}
}

func (w watching) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		w.see(ctx, err)
		return conn, err
	}
}

func (w watching) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		w.see(ctx, err)
		return err
	}
}

func (w watching) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		w.see(ctx, err)
		return err
	}
}
