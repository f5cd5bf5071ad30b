package grpclimit

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/headgate/headgate/httplimit"
)

// KeyFunc names something of a call; "" says that the call has none of it. What it returns is used as the name of a tenant or a queue: 1-128 bytes
// of [A-Za-z0-9._@/-].
type KeyFunc func(ctx context.Context, method string) string

// First returns the first of some keys that a call has.
func First(keys ...KeyFunc) KeyFunc {
	return func(ctx context.Context, method string) string {
		for _, key := range keys {
			if name := key(ctx, method); name != "" {
				return name
			}
		}
		return ""
	}
}

// Fixed is the same name for every call.
func Fixed(name string) KeyFunc { return func(context.Context, string) string { return name } }

// FromMetadata is httplimit.KeyName of the first value of the call's metadata of that name, such as x-api-key. Whether the value is a key that
// somebody was given is for others to check.
func FromMetadata(name string) KeyFunc {
	return func(ctx context.Context, _ string) string {
		if values := metadata.ValueFromIncomingContext(ctx, name); len(values) > 0 && values[0] != "" {
			return httplimit.KeyName(values[0])
		}
		return ""
	}
}

// FromUser is the name that user returns, as whatever authenticates has put it into ctx. One that is no name of a tenant, or looks like one that
// is made here, becomes its httplimit.KeyName.
func FromUser(user func(context.Context) string) KeyFunc {
	key := httplimit.FromUser(func(r *http.Request) string { return user(r.Context()) })
	return func(ctx context.Context, _ string) string { return key((&http.Request{}).WithContext(ctx)) }
}

// FromPeer is the client's address, as httplimit.FromIP has it: that of the connection, or what the proxies in the prefixes of trusted have seen by the metadata
// x-forwarded-for.
func FromPeer(trusted []netip.Prefix) KeyFunc {
	key := httplimit.FromIP(trusted)
	return func(ctx context.Context, _ string) string {
		r := &http.Request{}
		if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
			r.RemoteAddr = p.Addr.String()
		}
		if len(trusted) > 0 {
			r.Header = http.Header{"X-Forwarded-For": metadata.ValueFromIncomingContext(ctx, "x-forwarded-for")}
		}
		return key(r)
	}
}

// FromMethod is the method's full name without the slash before it: "helloworld.Greeter/SayHello".
func FromMethod() KeyFunc {
	return func(_ context.Context, method string) string {
		return httplimit.RouteName(strings.TrimPrefix(method, "/"))
	}
}
