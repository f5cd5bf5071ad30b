package deliver

import (
	"fmt"
	"net/netip"
	"syscall"
)

// RefusedAddressError is an address that deliveries may not go to.
type RefusedAddressError struct {
	Address netip.Addr
	Kind    string // "loopback", for one
	Flag    string // allows such addresses
}

// Error names the address, what it is, and the way out.
func (e *RefusedAddressError) Error() string {
	return fmt.Sprintf("address %s is refused: it is %s (allow such addresses with %s)", e.Address, e.Kind, e.Flag)
}

// block is a part of the address space that is not the public internet.
type block struct {
	prefix netip.Prefix
	kind   string
}

// blocks follow IANA's special-purpose registries for IPv4 and IPv6 (RFC 6890 and its successors). Clouds answer with
// credentials at the metadata addresses, most of them link-local; the others are listed.
var blocks = []block{
	{netip.MustParsePrefix("0.0.0.0/8"), "of this host"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared by a carrier's NAT"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("168.63.129.16/32"), "a cloud's metadata"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local, where clouds keep their metadata"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved for protocols"},
	{netip.MustParsePrefix("192.0.2.0/24"), "for documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "a relay of 6to4"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("fc00::/7"), "private"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
	{netip.MustParsePrefix("2001::/23"), "reserved for protocols"},
	{netip.MustParsePrefix("2001:db8::/32"), "for documentation"},
	{netip.MustParsePrefix("2002::/16"), "6to4"},
	{netip.MustParsePrefix("3fff::/20"), "for documentation"},
}

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	// nat64 carries an IPv4 address in its last four bytes (RFC 6052).
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

// kindOf says what an address is, empty if it is one of the public internet.
func kindOf(address netip.Addr) string {
	address = address.Unmap().WithZone("")
	if nat64.Contains(address) {
		bytes := address.As16()
		return kindOf(netip.AddrFrom4([4]byte(bytes[12:])))
	}
	for _, b := range blocks {
		if b.prefix.Contains(address) {
			return b.kind
		}
	}
	if address.Is6() && !globalUnicast.Contains(address) {
		return "not of the public internet"
	}
	return ""
}

// control lets a net.Dialer connect to public addresses only. The dialer calls it for each address that it tries, the
// name resolved. Errors say which flag allows more.
func control(flag string) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		target, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("read address to dial: %w", err)
		}
		if kind := kindOf(target.Addr()); kind != "" {
			return &RefusedAddressError{target.Addr(), kind, flag}
		}
		return nil
	}
}
