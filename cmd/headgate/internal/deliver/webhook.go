package deliver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/headgate/headgate/admission"
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
	// Warn is told of answers whose headers make no sense; nil for nobody. Several goroutines may call it.
	Warn func(error)
}

// DefaultWebhookTimeout is long for an answer and short for a slot that is held.
const DefaultWebhookTimeout = 5 * time.Second

func (c WebhookConfig) withDefaults() WebhookConfig {
	c.Timeout = cmp.Or(c.Timeout, DefaultWebhookTimeout)
	c.Concurrency = cmp.Or(c.Concurrency, 1)
	if c.Warn == nil {
		c.Warn = func(error) {}
	}
	return c
}

// Webhook delivers jobs by HTTP. Its methods may be called from several goroutines.
type Webhook struct {
	*receiver

	config WebhookConfig
}

// NewWebhook returns a Webhook. It sends nothing yet.
func NewWebhook(config WebhookConfig) (*Webhook, error) {
	config = config.withDefaults()
	to, err := newReceiver(receiverConfig{
		url: config.URL, secrets: config.Secrets, allowPrivate: config.AllowPrivate, connections: config.Concurrency,
		flag: "--deliver", allowFlag: "--allow-private",
	})
	if err := errors.Join(err, validateTimeout(config.Timeout)); err != nil {
		return nil, err
	}
	return &Webhook{receiver: to, config: config}, nil
}

func validateTimeout(timeout time.Duration) error {
	if timeout >= time.Millisecond && timeout <= admission.MaxTimeout {
		return nil
	}
	return &admission.FieldError{Field: "--timeout", Value: timeout.String(), Allowed: "1ms to 24h"}
}

// Handle delivers a job and waits for the answer. It is a worker.Handler.
func (w *Webhook) Handle(ctx context.Context, job worker.Job[[]byte]) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.config.Timeout, errTimeout)
	defer cancel()
	request, err := w.requestOf(ctx, &job)
	if err != nil {
		return err
	}
	response, said, err := w.post(request)
	if err != nil {
		return err
	}
	tellCost(ctx, &job, headerCost, response.Header.Values(headerCost), w.config.Warn)
	if err := tellPushback(ctx, response, time.Now()); err != nil {
		w.config.Warn(fmt.Errorf("job %s of tenant %s: %w: it counts for nothing", job.ID, job.Tenant, err))
	}
	return judge(response, said, time.Now())
}

// requestOf makes the POST of a job.
func (w *Webhook) requestOf(ctx context.Context, job *worker.Job[[]byte]) (*http.Request, error) {
	body, media := job.Payload, contentType(job)
	if w.config.CloudEvents {
		var err error
		if body, err = encodeEvent(job); err != nil {
			return nil, err
		}
		media = typeEvent
	}
	request, err := w.request(ctx, media, messageID(admission.Key{Tenant: job.Tenant, ID: job.ID}), body)
	if err == nil {
		addHeaders(request.Header, job)
		// Where the worker traces, its span is the parent of the receiver's.
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(request.Header))
	}
	return request, err
}
