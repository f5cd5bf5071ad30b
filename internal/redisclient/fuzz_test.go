package redisclient

import (
	"net"
	"strings"
	"testing"
)

// FuzzParse: an address is taken with the settings of the house, one of Sentinels with a name and hosts; an error quotes
// nothing of a password.
func FuzzParse(f *testing.F) {
	const secret = "hunter2hunter2"
	for _, address := range []string{
		"redis://host:1/2", "rediss-sentinel://app:s3%2Fcret@one:26379,two,[::1]:7/4?master=jobs&sentinel_username=watch", "unix:///tmp/redis.sock",
		"redis-sentinel://one:1,,two:2?master=m", "redis://u:SECRET@host:port", "redis-sentinel://:SECRET@one:1/x?master=m", "redis://:SECRET", "rediss://:SECRET@h%zz",
		"redis-sentinel://a:SECRET@b@c:1?master=%zz", "redis://host?db=SECRET", "SECRET://host:1", "redis://h:1?dial_timeout=SECRET",
	} {
		f.Add(address)
	}
	f.Fuzz(func(t *testing.T, address string) {
		address = strings.ReplaceAll(address, "SECRET", secret)
		options, by, err := Parse(address)
		if err != nil {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%v quotes the secret", err)
			}
			return
		}
		if options.MaxRetries != -1 || !options.ContextTimeoutEnabled || options.PoolSize == 0 || options.ReadTimeout == 0 {
			t.Errorf("%q: %+v", address, options)
		}
		if (by != nil) != IsSentinel(address) {
			t.Errorf("%q: asks Sentinels: %t", address, by != nil)
		}
		if by == nil {
			return
		}
		if by.Master == "" || len(by.Addrs) == 0 {
			t.Errorf("%q: %+v", address, by)
		}
		for _, addr := range by.Addrs {
			if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
				t.Errorf("%q: a Sentinel at %q", address, addr)
			}
		}
	})
}
