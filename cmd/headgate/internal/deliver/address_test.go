package deliver

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/admission"
)

func TestAddressesOfThePublicInternet(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0.0.0.0": "of this host", "10.1.2.3": "private", "100.64.0.1": "carrier", "100.127.255.255": "carrier", "127.0.0.1": "loopback",
		"127.9.9.9": "loopback", "169.254.169.254": "metadata", "168.63.129.16": "metadata", "172.16.0.1": "private", "172.31.255.255": "private",
		"192.168.1.1": "private", "192.0.0.192": "reserved", "198.19.0.1": "benchmarks", "224.0.0.1": "multicast", "239.1.1.1": "multicast",
		"255.255.255.255": "reserved", "::": "not of", "::1": "loopback", "::7f00:1": "not of", "fc00::1": "private", "fd00:ec2::254": "private",
		"fe80::1": "link-local", "fe80::1%eth0": "link-local", "fec0::1": "not of", "ff02::1": "multicast", "::ffff:127.0.0.1": "loopback",
		"::ffff:10.0.0.1": "private", "64:ff9b::7f00:1": "loopback", "64:ff9b::a9fe:a9fe": "metadata", "64:ff9b:1::1": "not of",
		"2001::1": "reserved", "2002:7f00:1::": "6to4", "2001:db8::1": "documentation",
		"1.1.1.1": "", "100.63.0.1": "", "100.128.0.1": "", "172.15.0.1": "", "172.32.0.1": "", "168.63.129.17": "", "223.255.255.255": "",
		"2606:4700:4700::1111": "", "64:ff9b::101:101": "", "::ffff:1.1.1.1": "", "2001:4860:4860::8888": "",
	} {
		if kind := kindOf(netip.MustParseAddr(text)); (kind == "") != (want == "") || !strings.Contains(kind, want) {
			t.Errorf("%s is %q, want %q", text, kind, want)
		}
	}
}

// TestPrivateAddressesAreRefusedAsTheyAreDialled goes by a name, which nothing but the dialler sees resolved.
func TestPrivateAddressesAreRefusedAsTheyAreDialled(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1") // Were it used, the error would name it.
	var reached atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(server.Close)
	url := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	hook, err := NewWebhook(WebhookConfig{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	refused, ok := errors.AsType[*RefusedAddressError](hook.Handle(t.Context(), testJob("{}")))
	if !ok || refused.Kind != "loopback" || reached.Load() > 0 {
		t.Errorf("got %v, and it was reached %d times", refused, reached.Load())
	}
	if _, ok := errors.AsType[*RefusedAddressError](hook.Check(t.Context())); !ok {
		t.Errorf("the check says %v", hook.Check(t.Context()))
	}
	hook, err = NewWebhook(WebhookConfig{URL: url, AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hook.client.CloseIdleConnections)
	if err := errors.Join(hook.Check(t.Context()), hook.Handle(t.Context(), testJob("{}"))); err != nil || reached.Load() != 1 {
		t.Errorf("allowed, it says %v, and was reached %d times", err, reached.Load())
	}
}

func TestTargetsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "ftp://example.com", "http://", "example.com", "http://example.com/#x", "http://sesame:%zz@example.com", "http://127.0.0.1/",
		"http://[::1]:80/", "http://[::ffff:10.0.0.1]/", "https://169.254.169.254/latest",
	} {
		if _, err := NewWebhook(WebhookConfig{URL: url}); !errors.Is(err, admission.ErrInvalid) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s gave %v", url, err)
		}
	}
}
