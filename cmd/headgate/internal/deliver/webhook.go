package deliver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/worker"
)

// WebhookConfig says where and how jobs are delivered by HTTP. Only URL has no default.
type WebhookConfig struct {
	// URL takes the POSTs, http or https.
	URL string
	// CloudEvents sends each job as a CloudEvent in structured mode, instead of its payload as it is.
	CloudEvents bool
	// Secrets sign the requests; without any they are not signed.
	Secrets []Secret
	// AllowPrivate lets deliveries go to addresses that are not of the public internet.
	AllowPrivate bool
	// Timeout bounds a delivery as a whole, 1 ms to headgate.MaxTimeout; zero means DefaultWebhookTimeout. A job whose
	// own Timeout is shorter gets that.
	Timeout time.Duration
	// Concurrency is how many deliveries there are at a time; zero means 1.
	Concurrency int
}

// DefaultWebhookTimeout is long for an answer and short for a slot that is held.
const DefaultWebhookTimeout = 5 * time.Second

func (c WebhookConfig) withDefaults() WebhookConfig {
	c.Timeout = cmp.Or(c.Timeout, DefaultWebhookTimeout)
	c.Concurrency = cmp.Or(c.Concurrency, 1)
	return c
}

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

// Webhook delivers jobs by HTTP. Its methods may be called from several goroutines.
type Webhook struct {
	config WebhookConfig
	target *url.URL
	client *http.Client
}

// NewWebhook returns a Webhook. It sends nothing yet.
func NewWebhook(config WebhookConfig) (*Webhook, error) {
	config = config.withDefaults()
	target, err := parseTarget(config)
	if err := errors.Join(err, validateTimeout(config.Timeout)); err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	if !config.AllowPrivate {
		dialer.Control = control
	}
	return &Webhook{config: config, target: target, client: &http.Client{
		Transport: &http.Transport{
			// No Proxy: it would be the proxy's address that is judged.
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    dialTimeout,
			ForceAttemptHTTP2:      true,
			DisableCompression:     true, // Nobody reads the bodies, and a small one may unpack to a large one.
			MaxResponseHeaderBytes: maxAnswerHeaders,
			MaxIdleConns:           config.Concurrency,
			MaxIdleConnsPerHost:    config.Concurrency,
			IdleConnTimeout:        idleTimeout,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func parseTarget(config WebhookConfig) (*url.URL, error) {
	bad := func(value, allowed string) error {
		return &headgate.FieldError{Field: "--deliver", Value: value, Allowed: allowed}
	}
	target, err := url.Parse(config.URL)
	if err != nil {
		return nil, bad("(not a URL)", "http://host/path or https://host/path") // It may hold a password.
	}
	if target.Scheme != "http" && target.Scheme != "https" || target.Hostname() == "" || target.Fragment != "" {
		return nil, bad(strconv.Quote(hostOf(target)), "http://host/path or https://host/path")
	}
	address, err := netip.ParseAddr(target.Hostname())
	if err != nil || config.AllowPrivate {
		return target, nil //nolint:nilerr // A name, which is judged when it is resolved.
	}
	if kind := kindOf(address); kind != "" {
		return nil, bad(strconv.Quote(hostOf(target)), "an address of the public internet, and this is "+kind+"; or --allow-private")
	}
	return target, nil
}

func validateTimeout(timeout time.Duration) error {
	if timeout >= time.Millisecond && timeout <= headgate.MaxTimeout {
		return nil
	}
	return &headgate.FieldError{Field: "--timeout", Value: timeout.String(), Allowed: "1ms to 24h"}
}

// String names the receiver without what may be a secret.
func (w *Webhook) String() string { return hostOf(w.target) }

// Handle delivers a job and waits for the answer. It is a worker.Handler.
func (w *Webhook) Handle(ctx context.Context, job worker.Job[[]byte]) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.config.Timeout, errTimeout)
	defer cancel()
	request, err := w.request(ctx, &job)
	if err != nil {
		return err
	}
	response, err := w.client.Do(request)
	if err != nil {
		return w.unanswered(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	said, _ := io.ReadAll(io.LimitReader(response.Body, maxAnswer)) // The status has said all that counts.
	return judge(response, said, time.Now())
}

// request makes the POST of a job.
func (w *Webhook) request(ctx context.Context, job *worker.Job[[]byte]) (*http.Request, error) {
	body, media := job.Payload, contentType(job)
	if w.config.CloudEvents {
		var err error
		if body, err = encodeEvent(job); err != nil {
			return nil, err
		}
		media = typeEvent
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, &FailureError{brief: "make request to " + w.String()} // The cause quotes the URL.
	}
	request.Header.Set("Content-Type", media)
	request.Header.Set("User-Agent", "headgate")
	addHeaders(request.Header, job)
	sign(request.Header, w.config.Secrets, messageID(headgate.Key{Tenant: job.Tenant, ID: job.ID}), time.Now(), body)
	return request, nil
}

// unanswered is a delivery without an answer. The error of the client quotes the URL, so only its cause is kept.
func (w *Webhook) unanswered(ctx context.Context, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return &FailureError{brief: fmt.Sprintf("post to %s: %s", w, err), cause: err}
}
