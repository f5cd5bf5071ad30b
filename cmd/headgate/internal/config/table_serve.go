package config

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admission"
)

// The defaults and bounds of package admin, which stands far above this one: tests hold them equal.
const (
	defaultMaxBody                  = (admission.DefaultMaxPayload+2)/3*4 + 64<<10
	maxMaxBody                      = 64 << 20
	defaultMaxConnections           = 4096
	defaultMaxConnectionsPerAddress = 1024
	maxMaxConnections               = 1_000_000
	defaultMaxCalls                 = 256
	maxMaxCalls                     = 100_000
	defaultMaxBytes                 = 64 << 20
	minMaxBytes                     = 8 << 20
	maxMaxBytes                     = 16 << 30
	defaultTenantRate               = 1000
	defaultTenantBytes              = 4 << 20
	maxTimeout                      = 5 * time.Minute
)

func serveOptions() []Option {
	at := func(c *Config) *Serve { return &c.Serve }
	return []Option{
		{
			Path: pathAddress, Flag: "address", Default: DefaultAddress, Doc: "Where `headgate serve` listens.",
			value: address(func(c *Config) *string { return &at(c).Address }),
		},
		{
			Path: pathServeCert, Flag: "tls-cert", Unset: "it speaks http", Live: true, Doc: "PEM file of the certificate chain; with `serve.tls.key_file` it makes it https.",
			value: text("the name of a file", nil, func(c *Config) *string { return &at(c).TLS.CertFile }),
		},
		{
			Path: pathServeKey, Flag: "tls-key", Unset: "none", Live: true, Doc: "PEM file of the certificate's key.",
			value: text("the name of a file", nil, func(c *Config) *string { return &at(c).TLS.KeyFile }),
		},
		{
			Path: pathClientCA, Flag: "tls-client-ca", Unset: "clients show no certificate", Doc: "PEM file of authorities. Clients must show a certificate of one of them.",
			value: text("the name of a file", nil, func(c *Config) *string { return &at(c).TLS.ClientCAFile }),
		},
		{
			Path: "serve.tls.min_version", Flag: "tls-min", Default: "1.2", Doc: "Oldest version of TLS that is spoken.",
			value: word([]string{"1.2", "1.3"}, func(c *Config) *string { return &at(c).TLS.MinVersion }),
		},
		{
			Path: "serve.allow", Flag: "allow", Unset: "all", Live: true, Doc: "Addresses and networks that may call.",
			value: list[netip.Prefix]{
				allowed: "up to 1000 addresses and networks", example: `["10.0.0.0/8","2001:db8::1"]`, most: 1000,
				at: func(c *Config) *[]netip.Prefix { return &at(c).Allow }, parse: parseNetwork, text: netip.Prefix.String,
			},
		},
		{
			Path: "serve.max_body", Flag: "max-body", Default: strconv.Itoa(defaultMaxBody), Doc: "Largest body of a job with its payload, in bytes; a payload of 1 MiB has 1.4 MB in base64. Other calls may have 64 KiB, a result 88 KiB more, a policy its own 4 MiB more.",
			value: count(1<<10, maxMaxBody, func(c *Config) *int { return &at(c).MaxBody }),
		},
		{
			Path: "serve.timeout", Flag: "timeout", Default: "10s", Doc: "Longest time of a call.",
			value: duration(time.Millisecond, maxTimeout, func(c *Config) *time.Duration { return &at(c).Timeout }),
		},
		{
			Path: "serve.x_ratelimit", Flag: "x-ratelimit", Default: "false", Doc: "Also send X-RateLimit-Limit, -Remaining, -Reset and -Retry-After with decisions.",
			value: boolean(func(c *Config) *bool { return &at(c).OldHeaders }),
		},
		{
			Path: "serve.admin_rate", Flag: "admin-rate", Default: "50", Doc: "Calls a second of one credential, enqueueing and decisions apart.",
			value: count(1, int(admission.MaxLimitTokens), func(c *Config) *int { return &at(c).Rate }),
		},
		{
			Path: "serve.admin_burst", Flag: "admin-burst", Default: "100", Doc: "Such calls at once.",
			value: count(1, int(admission.MaxLimitTokens), func(c *Config) *int { return &at(c).Burst }),
		},
	}
}

// boundOptions are those of how much a server takes at a time.
func boundOptions() []Option {
	at := func(c *Config) *Bounds { return &c.Serve.Bounds }
	return []Option{
		{
			Path: "serve.max_connections", Default: strconv.Itoa(defaultMaxConnections), Doc: "Connections at a time; fewer where the process may not have as many descriptors and 128 more. The one that was idle longest without a credential makes room. A tenant may have a quarter.",
			value: count(1, maxMaxConnections, func(c *Config) *int { return &at(c).Connections }),
		},
		{
			Path: "serve.max_connections_per_address", Default: strconv.Itoa(defaultMaxConnectionsPerAddress), Doc: "Those of one address, or of one /64 of IPv6. A proxy has one address for all its callers.",
			value: count(1, maxMaxConnections, func(c *Config) *int { return &at(c).PerAddress }),
		},
		{
			Path: "serve.max_calls", Default: strconv.Itoa(defaultMaxCalls), Doc: "Calls under way at a time. Others wait for their turn, up to 5 s. Health and metrics have places of their own; a tenant may have a sixteenth.",
			value: count(1, maxMaxCalls, func(c *Config) *int { return &at(c).Calls }),
		},
		{
			Path: "serve.max_bytes", Default: strconv.Itoa(defaultMaxBytes), Doc: "Bytes of the bodies of these calls together, at least those of one. A tenant may have a sixteenth, or one body.",
			value: count(minMaxBytes, maxMaxBytes, func(c *Config) *int { return &at(c).Bytes }),
		},
		{
			Path: "serve.tenant_rate", Default: strconv.Itoa(defaultTenantRate), Doc: "Calls that enqueue or ask for decisions, a second, of all credentials of a tenant together, each question for itself; a quarter of them, and 64, at once. What its jobs may be is the policy's.",
			value: count(1, int(admission.MaxLimitTokens), func(c *Config) *int { return &at(c).TenantRate }),
		},
		{
			Path: "serve.tenant_bytes", Default: strconv.Itoa(defaultTenantBytes), Doc: "Bytes of bodies and of answers, a second, of all credentials of a tenant together, whatever becomes of them.",
			value: count(1<<10, maxMaxBytes, func(c *Config) *int { return &at(c).TenantBytes }),
		},
	}
}

// The modes of serve.limiter.mode, and the words of its outage modes, which are those of package limiter.
const (
	LimiterLeased = "leased"
	LimiterStrict = "strict"
	LimiterOff    = "off"
)

var outages = []string{"share", "open", "closed", "grace"}

// limiterOptions are those of how a server decides checks by itself.
func limiterOptions() []Option {
	at := func(c *Config) *ServeLimiter { return &c.Serve.Limiter }
	return []Option{
		{
			Path: "serve.limiter.mode", Default: LimiterLeased,
			Doc:   "How checks are decided: `leased` from tokens that the server has on lease, so that a window may admit half a burst more; `strict` also, with an eighth of the burst kept for that; `off` by a call of Redis each, and without Redis not at all (gateways are answered by `serve.limiter.outage` all the same).",
			value: word([]string{LimiterLeased, LimiterStrict, LimiterOff}, func(c *Config) *string { return &at(c).Mode }),
		},
		{
			Path: "serve.limiter.outage", Default: outages[0],
			Doc:   "How checks are answered while Redis is away: `share` by the scope's rate divided by the servers that lived last, `open` all admitted, `closed` all refused, `grace` by what is on lease.",
			value: word(outages, func(c *Config) *string { return &at(c).Outage }),
		},
		{
			Path: "serve.limiter.outage_at", Unset: "none", Doc: "Scopes with another mode, as in `acme=closed,acme:mail=open`.",
			value: list[OutageAt]{
				allowed: "up to 1000 scopes with share, open, closed or grace, such as acme:mail=open", example: `["acme:mail=open","acme=share"]`, most: 1000,
				at: func(c *Config) *[]OutageAt { return &at(c).OutageAt }, parse: parseOutageAt,
				text: func(o OutageAt) string { return string(o.Scope) + "=" + o.Outage }, id: func(o OutageAt) string { return string(o.Scope) },
			},
		},
		{
			Path: "serve.limiter.timeout", Default: "250ms", Doc: "How long a check waits for Redis before it is answered without.",
			value: duration(time.Millisecond, 10*time.Second, func(c *Config) *time.Duration { return &at(c).Timeout }),
		},
	}
}

// The keys of serve.authz.tenant; the last two end with a name.
const (
	AuthzIP        = "ip"
	AuthzForwarded = "forwarded"
	AuthzHeader    = "header:"
	AuthzFixed     = "fixed:"
)

// authzOptions are those of what gateways ask over HTTP.
func authzOptions() []Option {
	at := func(c *Config) *Authz { return &c.Serve.Authz }
	return []Option{
		{
			Path: pathAuthz, Unset: "no gateway is answered",
			Doc:   "Where gateways ask before they pass a request on, at `/authz` and, with 403 for every refusal, `/authz/nginx`. On loopback, or with `serve.tls.client_ca_file`, which then also holds here.",
			value: address(func(c *Config) *string { return &at(c).Listen }),
		},
		{
			Path: "serve.authz.tenant", Default: AuthzIP, Doc: "Whose request it is, the first that there is of `header:NAME` (hashed), `ip` (X-Forwarded-For of trusted proxies), `forwarded` (Forwarded of these) and `fixed:NAME`; without any `anonymous`.",
			value: list[string]{
				allowed: "up to 8 of header:NAME, ip, forwarded and fixed:NAME", example: `["header:X-Tenant","ip"]`, most: 8,
				at: func(c *Config) *[]string { return &at(c).Tenant }, parse: parseAuthzKey, text: func(s string) string { return s }, id: func(s string) string { return s },
			},
		},
		{
			Path: "serve.authz.routes", Unset: "requests have no queue", Doc: "Patterns as of Go's http.ServeMux, such as `GET /orders/{id}`. The one that takes a request is its queue, by the name `GET-/orders/_id_`; the others share `unrouted`.",
			value: list[string]{
				allowed: "up to 1000 patterns that do not conflict", example: `["GET /orders/{id}","POST /orders"]`, most: 1000, array: true,
				at: func(c *Config) *[]string { return &at(c).Routes }, parse: parsePattern, text: func(s string) string { return s }, id: func(s string) string { return s },
			},
		},
		{
			Path: "serve.authz.trusted", Unset: "none: the client is who connects", Doc: "Proxies whose word on a client's address is believed; the gateway is one.",
			value: list[netip.Prefix]{
				allowed: "up to 1000 addresses and networks", example: `["10.0.0.0/8","2001:db8::1"]`, most: 1000,
				at: func(c *Config) *[]netip.Prefix { return &at(c).Trusted }, parse: parseNetwork, text: netip.Prefix.String,
			},
		},
	}
}

// rlsOptions are those of Envoy's rate limit service.
func rlsOptions() []Option {
	at := func(c *Config) *RLS { return &c.Serve.RLS }
	return []Option{
		{
			Path: pathRLS, Unset: "there is none",
			Doc:   "Where Envoy's rate limit service (`envoy.service.ratelimit.v3`, gRPC) listens. On loopback, or with `serve.tls.client_ca_file`, which then also holds here.",
			value: address(func(c *Config) *string { return &at(c).Listen }),
		},
		{
			Path: pathMapping, Unset: "needed with `serve.rls.listen`", Live: true, Doc: "File in YAML that says which tenant and queue a descriptor is: docs/guides/envoy.md.",
			value: text("the name of a file", nil, func(c *Config) *string { return &at(c).MappingFile }),
		},
	}
}

func parseAuthzKey(text string) (string, bool) {
	if name, ok := strings.CutPrefix(text, AuthzHeader); ok {
		return text, name != "" && len(name) <= admission.MaxNameLength && !strings.ContainsAny(name, " \t:")
	}
	if name, ok := strings.CutPrefix(text, AuthzFixed); ok {
		return text, admission.ValidateTenant(name) == nil
	}
	return text, text == AuthzIP || text == AuthzForwarded
}

// parsePattern takes what a mux takes, which panics at all else.
func parsePattern(text string) (pattern string, ok bool) {
	defer func() { ok = recover() == nil }()
	http.NewServeMux().Handle(text, http.NotFoundHandler())
	return text, true
}

func parseOutageAt(text string) (OutageAt, bool) {
	scope, mode, ok := strings.Cut(text, "=")
	_, _, _, err := admission.Scope(scope).Parts()
	return OutageAt{admission.Scope(scope), mode}, ok && err == nil && slices.Contains(outages, mode)
}

// credentialOptions are those of who may call.
func credentialOptions() []Option {
	at := func(c *Config) *Credentials { return &c.Serve.Credentials }
	return []Option{
		{
			Path: pathKeys, Variable: variablePrefix + "KEYS", Unset: "none", Live: true, secret: true,
			Doc:   "API keys, as the lines of `headgate key new`, which hold hashes. Several may be valid at a time.",
			value: text("lines of headgate key new", nil, func(c *Config) *string { return &at(c).Keys }),
		},
		{
			Path: pathKeys + fileSuffix, Flag: "keys-file", Unset: "none", Live: true, Doc: "File of these lines. Of keys and a file those from the stronger source count.",
			value: text("the name of a file", nil, func(c *Config) *string { return &at(c).KeysFile }),
		},
		{
			Path: pathJWKS, Variable: variablePrefix + "JWKS", Unset: "no token is taken", Live: true, secret: true, Doc: "JSON Web Key Set with the keys that sign tokens.",
			value: text(`{"keys": [...]}`, nil, func(c *Config) *string { return &at(c).JWKS }),
		},
		{
			Path: pathJWKS + fileSuffix, Flag: "jwks-file", Unset: "none", Live: true, Doc: "File of the key set.",
			value: text("the name of a file", nil, func(c *Config) *string { return &at(c).JWKSFile }),
		},
		{
			Path: pathIssuer, Flag: "token-issuer", Unset: "needed where tokens are taken", Live: true, Doc: "`iss` that tokens must have.",
			value: text("any text", nil, func(c *Config) *string { return &at(c).Issuer }),
		},
		{
			Path: pathAudience, Flag: "token-audience", Unset: "needed where tokens are taken", Live: true, Doc: "`aud` that tokens must have.",
			value: text("any text", nil, func(c *Config) *string { return &at(c).Audience }),
		},
		{
			Path: "serve.tokens.leeway", Flag: "token-leeway", Default: "0s", Live: true, Doc: "By how much the issuer's clock may be off.",
			value: duration(0, access.MaxLeeway, func(c *Config) *time.Duration { return &at(c).Leeway }),
		},
		{
			Path: "serve.tokens.max_life", Default: "24h0m0s", Live: true, Doc: "Longest life of a token, from its `iat` or now to its `exp`: others are refused.",
			value: duration(access.MinMaxLife, access.MaxMaxLife, func(c *Config) *time.Duration { return &at(c).MaxLife }),
		},
		{
			Path: pathNoAuth, Flag: "insecure-no-auth", Default: "false", Doc: "Take everybody for an admin; on a loopback address only.",
			value: boolean(func(c *Config) *bool { return &at(c).NoAuth }),
		},
	}
}

// address is host:port.
func address(at func(*Config) *string) value {
	return text("host:port", func(s string) bool {
		_, _, err := net.SplitHostPort(s)
		return err == nil
	}, at)
}

// parseNetwork reads a network, or an address, which is a network of one.
func parseNetwork(text string) (netip.Prefix, bool) {
	if single, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(single.WithZone(""), single.BitLen()), true
	}
	network, err := netip.ParsePrefix(text)
	return network.Masked(), err == nil
}
