package httplimit

import (
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// FromIP is the client's address, an IPv6 one its /64, which is what one client has: "ip-203.0.113.7", "ip-2001-db8-0-1".
//
// That is the address of the connection, unless it is a trusted proxy's, in one of the prefixes of trusted: then X-Forwarded-For is
// read from its right end, where the nearest proxy has put what it saw, past addresses that are trusted, to the first that is not. What
// stands left of that anybody may have written. What is no address ends the reading, as do 32 steps; the last address before is taken then. A
// connection without an address, such as one of a Unix socket, is "ip-unknown" and no trusted proxy.
//
// With a proxy that passes X-Forwarded-For on as it came, without adding to it, no prefix may be trusted.
func FromIP(trusted []netip.Prefix) KeyFunc {
	return proxies{field: "X-Forwarded-For", cut: func(line string) int { return strings.LastIndexByte(line, ',') }, read: addressOf}.key(trusted)
}

// FromForwarded is FromIP with the header Forwarded of RFC 7239 in the place of X-Forwarded-For: for proxies that write the one and not
// the other, which a client may have written then.
func FromForwarded(trusted []netip.Prefix) KeyFunc {
	return proxies{field: "Forwarded", cut: lastComma, read: forwardedFor}.key(trusted)
}

// FromAddress is the client's whole address as FromIP finds it, for a dimension of the policy whose "by" cuts it to a prefix; "" for a connection
// without one.
func FromAddress(trusted []netip.Prefix) KeyFunc {
	p := proxies{field: "X-Forwarded-For", cut: func(line string) int { return strings.LastIndexByte(line, ',') }, read: addressOf}.trusting(trusted)
	names := newMemo[[16]byte, string]()
	return func(r *http.Request) string {
		addr := p.client(r)
		if !addr.IsValid() {
			return ""
		}
		name, ok := names.get(addr.As16())
		if !ok {
			name = addr.String()
			names.put(addr.As16(), name)
		}
		return name
	}
}

// FromNetworks is the name of the network that the client's address, as FromIP finds it, is in, for a dimension of the policy such as region: of
// several prefixes the longest decides, and 0.0.0.0/0 and ::/0 name the rest. "" where there is none, which has no bucket. The table is copied; a
// prefix that is not valid holds nobody.
func FromNetworks(trusted []netip.Prefix, table map[netip.Prefix]string) KeyFunc {
	p := proxies{field: "X-Forwarded-For", cut: func(line string) int { return strings.LastIndexByte(line, ',') }, read: addressOf}.trusting(trusted)
	names, lengths := make(map[netip.Prefix]string, len(table)), map[bool]map[int]bool{true: {}, false: {}}
	for prefix, name := range table {
		prefix = unmapped(prefix)
		names[prefix.Masked()] = name
		lengths[prefix.Addr().Is4()][prefix.Bits()] = true
	}
	longest := map[bool][]int{}
	for is4, all := range lengths {
		longest[is4] = slices.Sorted(maps.Keys(all))
		slices.Reverse(longest[is4])
	}
	known := newMemo[[16]byte, string]()
	return func(r *http.Request) string {
		addr := p.client(r)
		if !addr.IsValid() {
			return ""
		}
		name, ok := known.get(addr.As16())
		if ok {
			return name
		}
		for _, bits := range longest[addr.Is4()] {
			if prefix, err := addr.Prefix(bits); err == nil {
				if name, ok = names[prefix]; ok {
					break
				}
			}
		}
		known.put(addr.As16(), name)
		return name
	}
}

// unmapped is a prefix of IPv4 addresses that is written as IPv6 as what it is.
func unmapped(prefix netip.Prefix) netip.Prefix {
	if addr := prefix.Addr(); addr.Is4In6() && prefix.Bits() >= 96 {
		return netip.PrefixFrom(addr.Unmap(), prefix.Bits()-96)
	}
	return prefix
}

// proxies says whose word on a client's address is believed, and how it is read.
//
//nolint:recvcheck // It is a plain value; what each request asks spares the copy.
type proxies struct {
	field   string
	trusted []netip.Prefix
	// cut returns where the last comma of a list is that parts members, below zero for none.
	cut func(line string) int
	// read returns the address in a member, the zero Addr where there is none.
	read func(member string) netip.Addr
}

const (
	// mostHops is how many members of a header are read.
	mostHops = 32
	// longestMember is longer than any that has an address.
	longestMember = 256
)

func (p proxies) trusting(trusted []netip.Prefix) proxies {
	p.trusted = make([]netip.Prefix, len(trusted))
	for i, prefix := range trusted {
		p.trusted[i] = unmapped(prefix)
	}
	return p
}

func (p proxies) key(trusted []netip.Prefix) KeyFunc {
	p = p.trusting(trusted)
	names := newMemo[[16]byte, string]()
	return func(r *http.Request) string {
		addr := p.client(r)
		if !addr.IsValid() {
			return addressPrefix + "unknown"
		}
		if addr.Is6() {
			addr = netip.PrefixFrom(addr, 64).Masked().Addr()
		}
		name, ok := names.get(addr.As16())
		if !ok {
			name = addressName(addr)
			names.put(addr.As16(), name)
		}
		return name
	}
}

// client returns the address of the nearest hop that is not trusted.
func (p *proxies) client(r *http.Request) netip.Addr {
	client, lines := addressOf(r.RemoteAddr), r.Header[p.field]
	line, rest := len(lines), ""
	for range mostHops {
		if !p.trusts(client) {
			break
		}
		if rest == "" {
			if line--; line < 0 {
				break
			}
			rest = lines[line]
		}
		at := p.cut(rest)
		member := strings.Trim(rest[at+1:], " \t")
		rest = rest[:max(0, at)]
		if member == "" {
			continue
		}
		next := netip.Addr{}
		if len(member) <= longestMember {
			next = p.read(member)
		}
		if !next.IsValid() {
			break
		}
		client = next
	}
	return client
}

func (p *proxies) trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(p.trusted, func(prefix netip.Prefix) bool { return prefix.Contains(addr) })
}

// addressOf reads an address with or without a port, an IPv6 one in brackets or not. Its zone means nothing here, and an IPv4 one
// that is written as IPv6 is itself. It returns the zero Addr for what is none.
func addressOf(text string) netip.Addr {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		end := strings.IndexByte(inner, ']')
		if end < 0 || len(inner) > end+1 && inner[end+1] != ':' {
			return netip.Addr{}
		}
		text = inner[:end]
	} else if colon := strings.IndexByte(text, ':'); colon >= 0 && colon == strings.LastIndexByte(text, ':') {
		text = text[:colon]
	}
	text, _, _ = strings.Cut(text, "%")
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap()
}

// forwardedFor reads the "for" of a member of Forwarded. One that is obfuscated or "unknown" is no address.
func forwardedFor(member string) netip.Addr {
	for member != "" {
		var pair string
		pair, member, _ = strings.Cut(member, ";")
		name, value, _ := strings.Cut(pair, "=")
		if strings.EqualFold(strings.Trim(name, " \t"), "for") {
			return addressOf(strings.Trim(value, " \t\""))
		}
	}
	return netip.Addr{}
}

// lastComma returns where the last comma is that stands in no quotes. It looks from the right, so that quotes which a client has left open
// reach no member that a proxy has added.
func lastComma(line string) int {
	quoted := false
	for i := len(line) - 1; i >= 0; i-- {
		switch {
		case line[i] == '"':
			quoted = !quoted
		case line[i] == ',' && !quoted:
			return i
		}
	}
	return -1
}

func addressName(addr netip.Addr) string {
	if addr.Is4() {
		return addressPrefix + addr.String()
	}
	bytes := addr.As16() // Of which the first 8 are the name.
	name := append(make([]byte, 0, 24), addressPrefix[:len(addressPrefix)-1]...)
	for i := 0; i < 8; i += 2 {
		name = append(name, '-')
		name = strconv.AppendUint(name, uint64(bytes[i])<<8|uint64(bytes[i+1]), 16)
	}
	return string(name)
}
