package redisclient

import (
	"slices"
	"strings"
	"testing"
)

func TestParseSentinel(t *testing.T) {
	t.Parallel()
	options, by, err := Parse("rediss-sentinel://app:s3%2Fcret@one:26379,two,[::1]:7/4?master=jobs&sentinel_username=watch&sentinel_password=w0rd&read_timeout=2s")
	if err != nil {
		t.Fatal(err)
	}
	if by.Master != "jobs" || by.Username != "watch" || by.Password != "w0rd" || !slices.Equal(by.Addrs, []string{"one:26379", "two:26379", "[::1]:7"}) {
		t.Errorf("%+v", by)
	}
	if options.Username != "app" || options.Password != "s3/cret" || options.DB != 4 || options.ReadTimeout.Seconds() != 2 || options.MaxRetries != -1 {
		t.Errorf("%+v", options)
	}
	if options.TLSConfig == nil || options.TLSConfig.ServerName != "" {
		t.Errorf("%+v", options.TLSConfig)
	}
	if strings.ContainsAny(options.Addr, "/") || strings.Contains(options.Addr, "cret") || !strings.Contains(options.Addr, "jobs, known to one:26379") {
		t.Errorf("it is called %q", options.Addr)
	}
	options, by, err = Parse("redis://:pw@host:1/2")
	if err != nil || by != nil || options.Addr != "host:1" || options.PoolSize != DefaultPoolSize {
		t.Errorf("%+v, %+v, %v", options, by, err)
	}
}

func TestParseNamesTheMistakeAndNoPassword(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"redis-sentinel://:hunter2@one:1,two:2":                 "names no master",
		"redis-sentinel://:hunter2@one:1,,two:2?master=m":       "no host:port",
		"redis-sentinel://?master=m":                            "no host:port",
		"redis-sentinel://:hunter2@one:1/x?master=m":            "unknown or out of range",
		"redis-sentinel://:hunter2@one:1?master=m&colour=green": "unknown or out of range",
		"redis-sentinel://:hun%ter2@one:1?master=m":             "is not a URL",
		"http://:hunter2@one:1":                                 "unknown or out of range",
		":hunter2@one:1":                                        "no scheme",
		"hunter2":                                               "neither a URL nor host:port",
	} {
		if _, _, err := Parse(address); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hun") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
