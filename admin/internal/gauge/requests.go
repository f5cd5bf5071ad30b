package gauge

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// Requests counts calls.
type Requests struct {
	decisions
	permits

	calls  *prometheus.CounterVec
	took   *prometheus.HistogramVec
	checks *prometheus.CounterVec
	tokens prometheus.Counter
	// signals are levels told, by queues that the policy has measured and by level.
	signals *prometheus.CounterVec
	// refused are calls and connections that the server had no room for, by what there was too much of.
	refused *prometheus.CounterVec
}

// native makes a histogram exact to a tenth with few buckets, for scrapers that know them; the others get fixed ones.
func native(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}
}

// Register registers all metrics of the server.
func Register(to prometheus.Registerer, store store.Deployment) (*Requests, error) {
	r := &Requests{
		decisions: newDecisions(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_http_requests_total", Help: "Calls of the admin API by route and status.",
		}, []string{"route", "code"}),
		took: prometheus.NewHistogramVec(native("headgate_http_request_duration_seconds", "Time to answer a call of the admin API, by route.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}), []string{"route"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rate_limit_requests_total", Help: "Decisions of POST /api/v1/rate-limit/check and /reserve by result.",
		}, []string{"result"}),
		tokens: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rate_limit_tokens_consumed_total", Help: "Tokens that POST /api/v1/rate-limit/check and /reserve charged.",
		}),
	}
	r.signals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "backpressure_signals_sent_total", Help: "Answers of this server that told how much a queue is pressed, by level.",
	}, []string{"service_id", "level"})
	r.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_http_refused_total", Help: "Calls and connections that the server bounded, by cause.",
	}, []string{"cause"})
	return r, errors.Join(to.Register(r.refused), to.Register(r.signals), to.Register(r.decisions.took), to.Register(r.waits), to.Register(r.calls), to.Register(r.took), to.Register(r.checks), to.Register(r.tokens), to.Register(&collector{store: store, permits: &r.permits}))
}

// Note counts a call. route is a pattern of the server's, never what was called.
func (r *Requests) Note(route string, status int, took time.Duration) {
	r.calls.WithLabelValues(route, strconv.Itoa(status)).Inc()
	r.took.WithLabelValues(route).Observe(took.Seconds())
}

// Decided counts a decision and what it charged.
func (r *Requests) Decided(allowed bool, charged int64) {
	result := "denied"
	if allowed {
		result = "allowed"
	}
	r.checks.WithLabelValues(result).Inc()
	r.tokens.Add(float64(charged))
}

// Signalled counts a level that an answer told.
func (r *Requests) Signalled(queue string, level admission.PressureLevel) {
	r.signals.WithLabelValues(queue, level.String()).Inc()
}

// Refused counts a call or a connection that a bound of the server refused. cause is one of a few words.
func (r *Requests) Refused(cause string) { r.refused.WithLabelValues(cause).Inc() }
