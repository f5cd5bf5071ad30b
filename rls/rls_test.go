package rls

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/internal/unary"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

const mapping = `
domains:
  edge:
    rules:
      - {match: [{key: tenant}], tenant_from: tenant}
      - {match: [{key: tenant}, {key: path, value: /search}], tenant_from: tenant, queue: search}
      - {match: [{key: api_key}], tenant_from: api_key, hash_tenant: true}
      - {match: [{key: probe}], tenant_from: probe, shadow: true}
      - {match: [{key: user}], also: {user: user}}
      - {match: [{key: tenant}, {key: user}], tenant_from: tenant, also: {user: user}}
`

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// envoy is a client of a service over HTTP/2 without TLS, as Envoy is.
type envoy struct {
	tb      testing.TB
	service *Service
	client  *http.Client
	address string
}

func newEnvoy(tb testing.TB) *envoy {
	tb.Helper()
	p := policy.Unlimited()
	p.Tiers[policy.StandardTier] = policy.Tier{Limit: admission.Limit{Tokens: 10, Per: 24 * time.Hour, Burst: 10}}
	p.Dimensions = map[string]policy.DimensionRules{"user": {Limit: admission.Limit{Tokens: 4, Per: 24 * time.Hour, Burst: 4}}}
	limits, err := limiter.New(store.Single(memory.New(memory.Config{}), nil), limiter.Config{Policy: &p, Timeout: 10 * time.Second})
	check(tb, err)
	return envoyOf(tb, limits)
}

// envoyOf is a client of a service over a limiter.
func envoyOf(tb testing.TB, limits *limiter.Limiter) *envoy {
	tb.Helper()
	m, err := ReadMapping([]byte(mapping))
	check(tb, err)
	e := &envoy{tb: tb, service: New(limits, m)}
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	check(tb, err)
	ctx, stop := context.WithCancel(tb.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- e.service.Serve(ctx, listener, func(problem any, stack []byte) { tb.Errorf("%v\n%s", problem, stack) })
	}()
	transport := &http.Transport{Protocols: &http.Protocols{}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	e.client, e.address = &http.Client{Transport: transport}, "http://"+listener.Addr().String()
	tb.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
		check(tb, <-ended)
	})
	return e
}

// call returns the message and grpc-status.
func (e *envoy) call(method string, prefix byte, message []byte) (answer []byte, code, text string) {
	e.tb.Helper()
	frame := append(binary.BigEndian.AppendUint32([]byte{prefix}, uint32(len(message))), message...) //nolint:gosec // short
	r, err := http.NewRequestWithContext(e.tb.Context(), http.MethodPost, e.address+method, bytes.NewReader(frame))
	check(e.tb, err)
	r.Header.Set("Content-Type", "application/grpc")
	got, err := e.client.Do(r)
	check(e.tb, err)
	defer func() { _ = got.Body.Close() }()
	body, err := io.ReadAll(got.Body)
	check(e.tb, err)
	if len(body) == 0 {
		return nil, got.Header.Get("Grpc-Status"), got.Header.Get("Grpc-Message")
	}
	if size := binary.BigEndian.Uint32(body[1:]); body[0] != 0 || int(size) != len(body)-5 {
		e.tb.Fatalf("a frame of %d bytes says %d", len(body), size)
	}
	return body[5:], got.Trailer.Get("Grpc-Status"), ""
}

// asked writes a descriptor: pairs of keys and values, and its own addend where that is not below zero.
func asked(own int, pairs ...string) []byte {
	var d []byte
	for i := 0; i < len(pairs); i += 2 {
		d = appendMessage(d, 1, appendMessage(appendMessage(nil, 1, []byte(pairs[i])), 2, []byte(pairs[i+1])))
	}
	if own >= 0 {
		d = appendMessage(d, 3, appendUint(nil, 1, uint64(own))) //nolint:gosec // not below zero
	}
	return d
}

// told is what Envoy reads of an answer.
type told struct {
	overall   uint64
	codes     []uint64
	remaining []uint64
	perUnit   []uint64
	unit      []uint64
	headers   map[string]string
}

func (e *envoy) limit(domain string, hits uint64, descriptors ...[]byte) (t told) {
	e.tb.Helper()
	message := appendMessage(nil, 1, []byte(domain))
	for _, d := range descriptors {
		message = appendMessage(message, 2, d)
	}
	answer, code, text := e.call(methodLimit, 0, appendUint(message, 3, hits))
	if code != "0" {
		e.tb.Fatalf("grpc-status %s %s", code, text)
	}
	t.headers = map[string]string{}
	check(e.tb, fields(answer, func(number protowire.Number, value []byte, varint uint64) error {
		switch number {
		case 1:
			t.overall = varint
		case 2:
			var code, left, per, unit uint64
			check(e.tb, fields(value, func(number protowire.Number, value []byte, varint uint64) error {
				switch number {
				case 1:
					code = varint
				case 2:
					return fields(value, func(number protowire.Number, _ []byte, varint uint64) error {
						switch number {
						case 1:
							per = varint
						case 2:
							unit = varint
						}
						return nil
					})
				case 3:
					left = varint
				}
				return nil
			}))
			t.codes, t.remaining, t.perUnit, t.unit = append(t.codes, code), append(t.remaining, left), append(t.perUnit, per), append(t.unit, unit)
		case 3:
			var name string
			return fields(value, func(number protowire.Number, value []byte, _ uint64) error {
				if number == 1 {
					name = string(value)
				} else {
					t.headers[name] = string(value)
				}
				return nil
			})
		}
		return nil
	}))
	return t
}

// TestADescriptorIsChargedForItsDimensions, all or nothing with the others, and told of the one that refuses.
func TestADescriptorIsChargedForItsDimensions(t *testing.T) {
	t.Parallel()
	e := newEnvoy(t)
	both := asked(-1, "tenant", "acme", "user", "1")
	got := e.limit("edge", 3, asked(-1, "tenant", "zeta"), both, asked(1, "user", "2"))
	if got.overall != codeOK || !slices.Equal(got.remaining, []uint64{7, 7, 3}) || got.perUnit[2] != 4 {
		t.Fatalf("%+v", got)
	}
	got = e.limit("edge", 2, asked(-1, "tenant", "zeta"), both)
	if got.overall != codeOverLimit || got.codes[0] != codeOK || got.codes[1] != codeOverLimit || got.remaining[1] != 1 || got.perUnit[1] != 4 || got.headers["retry-after"] == "" {
		t.Errorf("%+v", got)
	}
	if got = e.limit("edge", 1, asked(-1, "tenant", "zeta"), asked(-1, "tenant", "acme")); !slices.Equal(got.remaining, []uint64{6, 6}) {
		t.Errorf("a refusal by a dimension has charged others: %+v", got)
	}
}

// TestALongValueIsNoWayAroundLimits: an error is what Envoy lets through, and clients write values as long as they like.
func TestALongValueIsNoWayAroundLimits(t *testing.T) {
	t.Parallel()
	e := newEnvoy(t)
	long := strings.Repeat("x", policy.MaxDimensionValue+1)
	got := e.limit("edge", 4, asked(-1, "tenant", long), asked(-1, "user", long))
	if got.overall != codeOK || !slices.Equal(got.remaining, []uint64{6, 0}) {
		t.Fatalf("%+v", got)
	}
	if got = e.limit("edge", 1, asked(-1, "user", long)); got.overall != codeOverLimit {
		t.Errorf("a second time: %+v", got)
	}
	if got = e.limit("edge", 1, asked(-1, "user", long+"y")); got.overall != codeOK {
		t.Errorf("another value: %+v", got)
	}
}

// TestACostAboveAllIsOverTheLimit, for no bucket lets it pass: such as the bytes of a body, which a client may say.
func TestACostAboveAllIsOverTheLimit(t *testing.T) {
	t.Parallel()
	e := newEnvoy(t)
	acme := asked(-1, "tenant", "acme")
	for _, hits := range []int{int(admission.MaxCost) + 1, 1 << 40} {
		if got := e.limit("edge", 1, acme, asked(hits, "tenant", "zeta")); got.overall != codeOverLimit || got.codes[0] != codeOK || got.codes[1] != codeOverLimit || len(got.headers) > 0 {
			t.Errorf("%d: %+v", hits, got)
		}
		if got := e.limit("edge", 1, asked(hits, "probe", "acme")); got.overall != codeOK {
			t.Errorf("%d in shadow: %+v", hits, got)
		}
	}
	if got := e.limit("edge", 1, acme); got.overall != codeOK || got.remaining[0] != 9 {
		t.Errorf("those refused have charged acme: %+v", got)
	}
	if stats := e.service.Stats(); stats.Refused != 2 || stats.Shadowed != 2 || stats.Failed != 0 {
		t.Errorf("%+v", stats)
	}
}

// TestHitsThatAreToBeGivenBackTakeNothing.
func TestHitsThatAreToBeGivenBackTakeNothing(t *testing.T) {
	t.Parallel()
	e := newEnvoy(t)
	for _, own := range []int{-1, 3} {
		if got := e.limit("edge", 2, appendUint(asked(own, "tenant", "acme"), 4, 1)); got.overall != codeOK {
			t.Errorf("%d: %+v", own, got)
		}
	}
	if got := e.limit("edge", 1, asked(-1, "tenant", "acme")); got.remaining[0] != 9 {
		t.Errorf("they have charged: %+v", got)
	}
}

// TestADeniedDescriptorChargesNoneOfTheOthers, each asks for its own addend or the call's, and a refusal says when to come back.
func TestADeniedDescriptorChargesNoneOfTheOthers(t *testing.T) {
	t.Parallel()
	e := newEnvoy(t)
	acme, zeta := asked(-1, "tenant", "acme"), asked(-1, "tenant", "zeta", "path", "/search")
	got := e.limit("edge", 3, acme, zeta)
	if got.overall != codeOK || len(got.codes) != 2 || got.remaining[0] != 7 || got.perUnit[0] != 10 || got.unit[0] != 4 {
		t.Fatalf("%+v", got)
	}
	got = e.limit("edge", 0, acme, asked(8, "tenant", "zeta"))
	if got.overall != codeOverLimit || got.codes[0] != codeOK || got.codes[1] != codeOverLimit || got.remaining[1] != 7 || got.headers["retry-after"] == "" {
		t.Errorf("%+v", got)
	}
	if got = e.limit("edge", 0, acme); got.overall != codeOK || got.remaining[0] != 6 {
		t.Errorf("the refusal has charged acme: %+v", got)
	}
	if got = e.limit("edge", 5, asked(0, "tenant", "acme")); got.overall != codeOK {
		t.Errorf("an addend of none: %+v", got)
	}
	if got = e.limit("edge", 0, acme); got.remaining[0] != 5 {
		t.Errorf("an addend of none has charged: %+v", got)
	}
	if stats := e.service.Stats(); stats.Calls != 5 || stats.Refused != 1 {
		t.Errorf("%+v", stats)
	}
}

func TestWhatIsUnknownOrInShadowIsOK(t *testing.T) {
	t.Parallel()
	e := newEnvoy(t)
	for range 12 {
		got := e.limit("edge", 0, asked(-1, "probe", "acme"), asked(-1, "color", "red"))
		if got.overall != codeOK || len(got.codes) != 2 || got.codes[0] != codeOK || got.codes[1] != codeOK {
			t.Fatalf("%+v", got)
		}
	}
	if got := e.limit("elsewhere", 0, asked(-1, "tenant", "acme")); got.overall != codeOK {
		t.Errorf("%+v", got)
	}
	if stats := e.service.Stats(); stats.Unknown != 13 || stats.Shadowed != 2 {
		t.Errorf("%+v", stats)
	}
	for range 10 {
		e.limit("edge", 0, asked(-1, "api_key", "sesame"))
	}
	if got := e.limit("edge", 0, asked(-1, "api_key", "sesame")); got.overall != codeOverLimit {
		t.Errorf("%+v", got)
	}
	m, err := ReadMapping([]byte("domains: {edge: {shadow: true, rules: [{match: [{key: api_key}], tenant_from: api_key, hash_tenant: true}]}}"))
	check(t, err)
	e.service.SetMapping(m)
	if got := e.limit("edge", 0, asked(-1, "api_key", "sesame")); got.overall != codeOK {
		t.Errorf("by the new mapping: %+v", got)
	}
}

// TestALimitIsToldAsItIs: 100 a minute are not two a second, of which 57 are left.
func TestALimitIsToldAsItIs(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		limit          admission.Limit
		requests, unit uint64
	}{
		{admission.PerSecond(10), 10, 1},
		{admission.PerMinute(100), 100, 2},
		{admission.PerMinute(90), 90, 2},
		{admission.PerMinute(120), 2, 1},
		{admission.PerHour(1000), 1000, 3},
		{admission.Limit{Tokens: 7, Per: 90 * time.Second}, 280, 3},
		{admission.Limit{Tokens: 1000, Per: admission.MaxLimitPer}, 32, 4},
		{admission.Limit{Tokens: 1, Per: admission.MaxLimitPer}, 1, 4},
	} {
		if requests, unit := perUnit(row.limit.Rate()); requests != row.requests || unit != row.unit {
			t.Errorf("%s: %d in unit %d, want %d in %d", row.limit.Words(), requests, unit, row.requests, row.unit)
		}
	}
}

func TestBadCallsAreAnsweredByCodes(t *testing.T) {
	t.Parallel()
	e := newEnvoy(t)
	many := bytes.Repeat(appendMessage(nil, 2, asked(-1, "a", "b")), maxDescriptors+1)
	for name, row := range map[string]struct {
		method  string
		prefix  byte
		message []byte
		code    int
	}{
		"another method": {"/a.B/C", 0, nil, unary.Unimplemented}, "compressed": {methodLimit, 1, nil, unary.Unimplemented},
		"no message": {methodLimit, 0, []byte{0xff}, unary.Invalid}, "too many": {methodLimit, 0, many, unary.Invalid},
		"too long": {methodLimit, 0, make([]byte, maxMessage+1), unary.Exhausted}, "another service": {methodHealth, 0, appendMessage(nil, 1, []byte("a.B")), unary.NotFound},
	} {
		if _, code, text := e.call(row.method, row.prefix, row.message); code != strconv.Itoa(row.code) || text == "" {
			t.Errorf("%s: grpc-status %s %q, want %d", name, code, text, row.code)
		}
	}
	for contentType, want := range map[string]int{"application/grpc+proto": 200, "application/grpc;x=y": 200, "application/grpc-web": 415, "application/json": 415} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.address+methodHealth, bytes.NewReader(make([]byte, 5)))
		check(t, err)
		r.Header.Set("Content-Type", contentType)
		got, err := e.client.Do(r)
		check(t, err)
		check(t, got.Body.Close())
		if got.StatusCode != want || (want == 200) != (got.Header.Get("Grpc-Accept-Encoding") == "identity") {
			t.Errorf("%s: %d %v", contentType, got.StatusCode, got.Header)
		}
	}
	for _, service := range []string{"", "envoy.service.ratelimit.v3.RateLimitService"} {
		message := []byte(nil)
		if service != "" {
			message = appendMessage(nil, 1, []byte(service))
		}
		if answer, code, _ := e.call(methodHealth, 0, message); code != "0" || !bytes.Equal(answer, []byte{8, 1}) {
			t.Errorf("health of %q: %v %s", service, answer, code)
		}
	}
}

// TestAMethodThatThereIsNotIsSaidBeforeAMessageComes: a stream may be opened and nothing sent on it.
func TestAMethodThatThereIsNotIsSaidBeforeAMessageComes(t *testing.T) {
	t.Parallel()
	e := newEnvoy(t)
	silent, write := io.Pipe()
	defer func() { _ = write.Close() }()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.address+"/grpc.health.v1.Health/Watch", silent)
	check(t, err)
	r.Header.Set("Content-Type", "application/grpc")
	time.AfterFunc(10*time.Second, func() { _ = write.Close() }) // Which would be answered by another code.
	got, err := e.client.Do(r)
	check(t, err)
	check(t, got.Body.Close())
	if code := got.Header.Get("Grpc-Status"); code != strconv.Itoa(unary.Unimplemented) {
		t.Errorf("grpc-status %s", code)
	}
}

func TestAMappingWithMistakesIsRefused(t *testing.T) {
	t.Parallel()
	for text, field := range map[string]string{
		"{}": "domains", "domains: {a: {rule: []}}": "rule", "domains: {a: {rules: [{tenant: b}]}}": "match",
		"domains: {a: {rules: [{match: [{key: k}], tenant_from: j}]}}":                "tenant_from",
		"domains: {a: {rules: [{match: [{key: k}], tenant: a b}]}}":                   "tenant",
		"domains: {a: {rules: [{match: [{key: k}], queue: q}]}}":                      "queue",
		"domains: {a: {rules: [{match: [{key: k}], tenant: t, class: high}]}}":        "class",
		"domains: {a: {rules: [{match: [{key: k}], tenant: t, tenant_from: k}]}}":     "tenant",
		"domains: {a: {rules: [{match: [{key: k}], tenant_from: k, queue_from: x}]}}": "queue_from",
		"domains: {a: {rules: [{match: [{key: k}], also: {user: x}}]}}":               "also.user",
	} {
		if _, err := ReadMapping([]byte(text)); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v, want one of %s", text, err, field)
		}
	}
}

func FuzzCall(f *testing.F) {
	f.Add(appendMessage(appendMessage(nil, 1, []byte("edge")), 2, asked(3, "tenant", "acme")))
	f.Fuzz(func(t *testing.T, message []byte) {
		c, err := readCall(message)
		if err == nil && len(c.descriptors) > maxDescriptors {
			t.Errorf("%d descriptors", len(c.descriptors))
		}
	})
}
