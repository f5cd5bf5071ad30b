package redisclient

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseCluster(t *testing.T) {
	t.Parallel()
	options, addrs, err := ParseCluster("rediss-cluster://app:s3%2Fcret@one:7000,[::1]:7001?read_timeout=2s")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(addrs, []string{"one:7000", "[::1]:7001"}) || options.Username != "app" || options.Password != "s3/cret" {
		t.Errorf("%v, %+v", addrs, options)
	}
	if options.TLSConfig == nil || options.TLSConfig.ServerName != "" || options.ReadTimeout != 2*time.Second || options.MaxRetries != -1 {
		t.Errorf("%+v", options)
	}
	if strings.Contains(options.Addr, "cret") {
		t.Errorf("it is called %q", options.Addr)
	}
	client := NewCluster(options, addrs)
	defer func() { _ = client.Close() }()
	if got := client.Options(); got.MaxRedirects > 0 || got.MaxRetries != -1 || got.Protocol != 2 {
		t.Errorf("it follows up to %d redirections and resends %d times, on RESP%d", got.MaxRedirects, got.MaxRetries, got.Protocol)
	}
}

func TestParseClusterNamesTheMistakeAndNoPassword(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"redis-cluster://:hunter2@one:1,two":         "no host:port",
		"redis-cluster://:hunter2@one:1,,two:2":      "no host:port",
		"redis-cluster://":                           "no host:port",
		"redis-cluster://:hunter2@one:1/3":           "names a database",
		"redis-cluster://:hunter2@one:1?colour=blue": "unknown or out of range",
		"redis-cluster://:hun%ter2@one:1":            "is not a URL",
	} {
		if _, _, err := ParseCluster(address); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hun") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
