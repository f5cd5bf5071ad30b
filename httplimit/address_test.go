package httplimit_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/httplimit"
)

// proxies are 10.0.0.0/8, written as IPv6 for once, and one of IPv6.
var proxies = []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104"), netip.MustParsePrefix("fd00::/8")}

func TestTheClientIsTheNearestThatIsNoProxy(t *testing.T) {
	t.Parallel()
	const behind = "10.0.0.1:4711" // a proxy
	for _, row := range []struct {
		name, peer string
		lines      []string
		want       string
	}{
		{"a peer of its own", "203.0.113.7:80", nil, "ip-203.0.113.7"},
		{"a peer that is no proxy is not believed", "203.0.113.7:80", []string{"198.51.100.1"}, "ip-203.0.113.7"},
		{"a proxy is", behind, []string{"198.51.100.1"}, "ip-198.51.100.1"},
		{"what a client wrote before the proxy added it", behind, []string{"1.2.3.4, 198.51.100.1"}, "ip-198.51.100.1"},
		{"a client that says it is a proxy", behind, []string{"10.0.0.9, 198.51.100.1"}, "ip-198.51.100.1"},
		{"two proxies", behind, []string{"1.2.3.4, 198.51.100.1, 10.9.9.9"}, "ip-198.51.100.1"},
		{"several lines are one list", behind, []string{"1.2.3.4", "198.51.100.1", "10.9.9.9"}, "ip-198.51.100.1"},
		{"a proxy's own request", behind, []string{"10.9.9.9"}, "ip-10.9.9.9"},
		{"no header", behind, nil, "ip-10.0.0.1"},
		{"empty members", behind, []string{"1.2.3.4", ", ,198.51.100.1 ,\t,", "", ","}, "ip-198.51.100.1"},
		{"empty alone", behind, []string{""}, "ip-10.0.0.1"},
		{"garbage ends it", behind, []string{"1.2.3.4, unknown, 10.9.9.9"}, "ip-10.9.9.9"},
		{"a number too large", behind, []string{"198.51.100.256"}, "ip-10.0.0.1"},
		{"leading zeros are octal to some", behind, []string{"198.051.100.1"}, "ip-10.0.0.1"},
		{"two addresses without a comma", behind, []string{"198.51.100.1 10.9.9.9"}, "ip-10.0.0.1"},
		{"a port", behind, []string{"198.51.100.1:1234"}, "ip-198.51.100.1"},
		{"an IPv6 address is its /64", behind, []string{"2001:db8:0:1:aaaa::1"}, "ip-2001-db8-0-1"},
		{"another of the same", behind, []string{"2001:db8:0:1:ffff:ffff:ffff:ffff"}, "ip-2001-db8-0-1"},
		{"in brackets", behind, []string{"[2001:db8:0:1::1]"}, "ip-2001-db8-0-1"},
		{"in brackets with a port", behind, []string{"[2001:db8:0:1::1]:443"}, "ip-2001-db8-0-1"},
		{"a bracket too few", behind, []string{"[2001:db8:0:1::1"}, "ip-10.0.0.1"},
		{"something behind the bracket", behind, []string{"[2001:db8:0:1::1]x"}, "ip-10.0.0.1"},
		{"IPv4 written as IPv6", behind, []string{"::ffff:198.51.100.1"}, "ip-198.51.100.1"},
		{"a proxy written as IPv6", behind, []string{"198.51.100.1, ::ffff:10.1.1.1"}, "ip-198.51.100.1"},
		{"a zone", behind, []string{"fe80::1%eth0"}, "ip-fe80-0-0-0"},
		{"a peer with a zone", "[fe80::1%eth0]:80", nil, "ip-fe80-0-0-0"},
		{"a proxy on IPv6", "[fd00::1]:80", []string{"198.51.100.1"}, "ip-198.51.100.1"},
		{"a peer written as IPv6", "[::ffff:10.0.0.1]:80", []string{"198.51.100.1"}, "ip-198.51.100.1"},
		{"a Unix socket", "@", []string{"198.51.100.1"}, "ip-unknown"},
		{"nothing at all", "", []string{"198.51.100.1"}, "ip-unknown"},
		{"a huge list of proxies", behind, []string{"198.51.100.1," + strings.Repeat("10.9.9.9,", 100_000) + "10.8.8.8"}, "ip-10.9.9.9"},
		{"a huge member", behind, []string{strings.Repeat("1", 1_000_000)}, "ip-10.0.0.1"},
		{"a huge list of nothing", behind, []string{"198.51.100.1" + strings.Repeat(",", 1_000_000)}, "ip-10.0.0.1"},
		{"a huge list of lines", behind, append([]string{"198.51.100.1"}, make([]string, 10_000)...), "ip-10.0.0.1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			key := httplimit.FromIP(proxies)
			for range 2 { // made, and remembered
				got := named(t, key, func(r *http.Request) { r.RemoteAddr, r.Header["X-Forwarded-For"] = row.peer, row.lines })
				if got != row.want || admission.ValidateTenant(got) != nil {
					t.Errorf("%q, want %q", got, row.want)
				}
			}
		})
	}
	if got := named(t, httplimit.FromIP(nil), func(r *http.Request) { r.RemoteAddr, r.Header["X-Forwarded-For"] = behind, []string{"198.51.100.1"} }); got != "ip-10.0.0.1" {
		t.Errorf("nobody is trusted: %q", got)
	}
}

func TestForwardedIsReadAsRFC7239Says(t *testing.T) {
	t.Parallel()
	key := httplimit.FromForwarded(proxies)
	for line, want := range map[string]string{
		`for=198.51.100.1`: "ip-198.51.100.1",
		`proto=https;For="198.51.100.1:443" ;by=10.0.0.1`:        "ip-198.51.100.1",
		`for="[2001:db8:0:1::1]:4711"`:                           "ip-2001-db8-0-1",
		`for=1.2.3.4, for=198.51.100.1;host="a,b", for=10.2.2.2`: "ip-198.51.100.1",
		`for="1.2.3.4, for=198.51.100.1`:                         "ip-198.51.100.1",
		`for=unknown, for=10.2.2.2`:                              "ip-10.2.2.2",
		`for=_hidden`:                                            "ip-10.0.0.1",
		`by=198.51.100.1`:                                        "ip-10.0.0.1",
		`for=`:                                                   "ip-10.0.0.1",

		`for=198.51.100.1` + strings.Repeat(",for=10.1.1.1", 10000): "ip-10.1.1.1",
	} {
		got := named(t, key, func(r *http.Request) {
			r.RemoteAddr = "10.0.0.1:1"
			r.Header["Forwarded"], r.Header["X-Forwarded-For"] = []string{line}, []string{"192.0.2.66"}
		})
		if got != want {
			t.Errorf("%.60s: %q, want %q", line, got, want)
		}
	}
}

// TestNothingAClientWritesMovesIt: a proxy adds what it saw to whatever came, on a line of its own or behind a comma, and that is who it is.
func TestNothingAClientWritesMovesIt(t *testing.T) {
	t.Parallel()
	pieces := []string{"10.0.0.1", "1.2.3.4", "for=", "\"", ",", ";", " ", "[", "]", ":", "%", "::1", "fd00::1", "=", "\\", "unknown"}
	rapid.Check(t, func(rt *rapid.T) {
		client := rapid.SampledFrom([]string{"198.51.100.7", "2001:db8:1:2::3"}).Draw(rt, "client")
		want := map[string]string{"198.51.100.7": "ip-198.51.100.7", "2001:db8:1:2::3": "ip-2001-db8-1-2"}[client]
		var lines []string
		for range rapid.IntRange(0, 4).Draw(rt, "lines") {
			lines = append(lines, strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 12).Draw(rt, "line"), ""))
		}
		last := rapid.Bool().Draw(rt, "comma") && len(lines) > 0
		add := func(lines []string, member string) []string {
			lines = append([]string{}, lines...)
			if last {
				lines[len(lines)-1] += ", " + member
				return lines
			}
			return append(lines, member)
		}
		if got := named(t, httplimit.FromIP(proxies), func(r *http.Request) {
			r.RemoteAddr, r.Header["X-Forwarded-For"] = "10.0.0.1:1", add(lines, client)
		}); got != want {
			rt.Errorf("X-Forwarded-For %q: %q, want %q", add(lines, client), got, want)
		}
		member := `for="[` + client + `]"`
		if !strings.Contains(client, ":") {
			member = "for=" + client
		}
		if got := named(t, httplimit.FromForwarded(proxies), func(r *http.Request) {
			r.RemoteAddr, r.Header["Forwarded"] = "10.0.0.1:1", add(lines, member)
		}); got != want {
			rt.Errorf("Forwarded %q: %q, want %q", add(lines, member), got, want)
		}
	})
}

// TestTheLongestPrefixNamesTheNetwork, of the client and not of a proxy; who is in none has no name, nor has a table that is changed afterwards any say.
func TestTheLongestPrefixNamesTheNetwork(t *testing.T) {
	t.Parallel()
	prefix := netip.MustParsePrefix
	table := map[netip.Prefix]string{
		prefix("203.0.113.0/24"): "eu", prefix("203.0.113.128/25"): "us", prefix("203.0.113.200/32"): "lab", prefix("2001:db8::/32"): "eu", prefix("2001:db8:1::/48"): "ap",
		prefix("::ffff:198.51.100.0/120"): "mapped", {}: "nobody",
	}
	of, rest := httplimit.FromNetworks(proxies, table), httplimit.FromNetworks(proxies, map[netip.Prefix]string{prefix("203.0.113.7/24"): "eu", prefix("0.0.0.0/0"): "rest"})
	clear(table)
	for range 2 { // The second time it remembers.
		for _, row := range []struct{ peer, line, want, rest string }{
			{"203.0.113.7:80", "", "eu", "eu"},
			{"203.0.113.129:80", "", "us", "eu"},
			{"203.0.113.200:80", "", "lab", "eu"},
			{"198.51.100.9:80", "", "mapped", "rest"},
			{"192.0.2.1:80", "", "", "rest"},
			{"[2001:db8::7]:80", "", "eu", ""},
			{"[2001:db8:1::7]:80", "", "ap", ""},
			{"[2001:db9::7]:80", "", "", ""},
			{"@", "", "", ""},
			{"10.0.0.1:80", "203.0.113.129", "us", "eu"},
			{"192.0.2.1:80", "203.0.113.129", "", "rest"},
		} {
			r := &http.Request{RemoteAddr: row.peer, Header: http.Header{}}
			if row.line != "" {
				r.Header.Set("X-Forwarded-For", row.line)
			}
			if got, other := of(r), rest(r); got != row.want || other != row.rest {
				t.Errorf("%s for %q is in %q and %q, want %q and %q", row.peer, row.line, got, other, row.want, row.rest)
			}
		}
	}
}
