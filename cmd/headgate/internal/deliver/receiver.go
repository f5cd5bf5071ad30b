package deliver

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

// Bounds of what a receiver may say and of how long it may take over the parts.
const (
	// maxAnswer is how much of a body is read, so that the connection can be used again; what is longer ends it.
	maxAnswer = 64 << 10
	// maxQuote is how much of the body of a refusal goes to the dead letter.
	maxQuote         = 512
	maxAnswerHeaders = 64 << 10
	dialTimeout      = 5 * time.Second
	idleTimeout      = 90 * time.Second
)

// receiverConfig says where POSTs go.
type receiverConfig struct {
	url string
	// secrets sign them.
	secrets []Secret
	// allowPrivate lets them go to addresses that are not of the public internet.
	allowPrivate bool
	// connections is how many of them are kept.
	connections int
	// flag and allowFlag are what errors call url and allowPrivate.
	flag, allowFlag string
}

// receiver is an HTTP server that takes POSTs. Its methods may be called from several goroutines.
type receiver struct {
	config receiverConfig
	target *url.URL
	client *http.Client
}

func newReceiver(config receiverConfig) (*receiver, error) {
	target, err := parseTarget(config)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	if !config.allowPrivate {
		dialer.Control = control(config.allowFlag)
	}
	return &receiver{config: config, target: target, client: &http.Client{
		Transport: &http.Transport{
			// No Proxy: it would be the proxy's address that is judged.
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    dialTimeout,
			ForceAttemptHTTP2:      true,
			DisableCompression:     true, // Nobody reads the bodies, and a small one may unpack to a large one.
			MaxResponseHeaderBytes: maxAnswerHeaders,
			MaxIdleConns:           config.connections,
			MaxIdleConnsPerHost:    config.connections,
			IdleConnTimeout:        idleTimeout,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// bareHost is a host without http:// before it: a name with a dot, a port or both. A secret hardly looks like that.
var bareHost = regexp.MustCompile(`^(localhost|[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})+)(:[0-9]{1,5})?$|^[A-Za-z0-9-]{1,63}:[0-9]{1,5}$`)

func parseTarget(config receiverConfig) (*url.URL, error) {
	bad := func(value, allowed string) error {
		return &admission.FieldError{Field: config.flag, Value: value, Allowed: allowed}
	}
	const allowed = "http://host/path or https://host/path"
	target, err := url.Parse(config.url)
	host := config.url
	if end := strings.IndexAny(host, "/?#"); end >= 0 {
		host = host[:end]
	}
	switch {
	case bareHost.MatchString(host): // url.Parse takes the host for a path, or for the scheme where a port follows.
		return nil, bad(strconv.Quote(host), strings.ReplaceAll(allowed, "host", host))
	case err != nil || target.Host == "":
		return nil, bad("(not a URL)", allowed) // It may hold a password.
	case target.Scheme != "http" && target.Scheme != "https" || target.Hostname() == "":
		return nil, bad(strconv.Quote(hostOf(target)), allowed)
	case target.Fragment != "":
		return nil, bad(strconv.Quote(hostOf(target)+"/#***"), allowed+", without #")
	}
	address, err := netip.ParseAddr(target.Hostname())
	if err != nil || config.allowPrivate {
		return target, nil //nolint:nilerr // A name, which is judged when it is resolved.
	}
	if kind := kindOf(address); kind != "" {
		return nil, bad(strconv.Quote(hostOf(target)), "an address of the public internet, and this is "+kind+"; or "+config.allowFlag)
	}
	return target, nil
}

// String names the receiver without what may be a secret.
func (r *receiver) String() string { return hostOf(r.target) }

// Check resolves the host and returns a *RefusedAddressError if no connection to it can be made because all of its
// addresses are refused. It is for telling at the start what would otherwise cost every job its attempts; what counts
// is the address at the time of a delivery.
func (r *receiver) Check(ctx context.Context) error {
	if r.config.allowPrivate {
		return nil
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", r.target.Hostname())
	if err != nil {
		return fmt.Errorf("resolve host of deliveries: %w", err)
	}
	var refused error
	for _, address := range addresses {
		kind := kindOf(address)
		if kind == "" {
			return nil
		}
		refused = &RefusedAddressError{address.Unmap(), kind, r.config.allowFlag}
	}
	return refused
}

// request makes a POST, signed if there are secrets.
func (r *receiver) request(ctx context.Context, media, id string, body []byte) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, &FailureError{brief: "make request to " + r.String()} // The cause quotes the URL.
	}
	request.Header.Set("Content-Type", media)
	request.Header.Set("User-Agent", "headgate")
	sign(request.Header, r.config.secrets, id, time.Now(), body)
	return request, nil
}

// post sends a request and returns the answer, and the beginning of what it says.
func (r *receiver) post(request *http.Request) (response *http.Response, said []byte, err error) {
	response, err = r.client.Do(request)
	if err != nil {
		return nil, nil, r.unanswered(request.Context(), err)
	}
	defer func() { _ = response.Body.Close() }()
	said, _ = io.ReadAll(io.LimitReader(response.Body, maxAnswer)) // The status has said all that counts.
	return response, said, nil
}

// unanswered is a POST without an answer. The error of the client quotes the URL, so only its cause is kept.
func (r *receiver) unanswered(ctx context.Context, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return &FailureError{brief: fmt.Sprintf("post to %s: %s", r, err), cause: err}
}

// hostOf names the target in logs and errors: the rest of a URL may hold secrets.
func hostOf(target *url.URL) string { return target.Scheme + "://" + target.Host }
