package telemetry

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/worker"
)

// other is the label of all that have none of their own.
const other = "other"

type metrics struct {
	requests *prometheus.CounterVec
	rejected *prometheus.CounterVec
	shed     *prometheus.CounterVec
	shedHere *prometheus.CounterVec
	doomed   *prometheus.CounterVec
	bypassed *prometheus.CounterVec
	tenants  *tenants
	jobs     *prometheus.CounterVec
	waits    *prometheus.HistogramVec
	runs     *prometheus.HistogramVec
	// states and violations are the guard's, by what it limits.
	states     *prometheus.GaugeVec
	violations *prometheus.CounterVec
}

// native makes a histogram exact to a tenth with few buckets, for scrapers that know them; the others get fixed ones.
func native(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 60, 300, 1800},
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}
}

func newMetrics(tenants int) *metrics {
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "throttle_requests_total", Help: "Jobs that this process asked to enqueue, by what became of that.",
		}, []string{"result"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "throttle_rejected_requests_total", Help: "Jobs of this process that were refused, by reason.",
		}, []string{"reason"}),
		shed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_shed_total", Help: "Jobs of this process that were refused because their queue was pressed, by class and tier.",
		}, []string{"priority", "tier"}),
		shedHere: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_shed_local_total", Help: "Those of headgate_shed_total that this process shed without a call to Redis, by class.",
		}, []string{"priority"}),
		doomed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_doomed_total", Help: "Jobs of this process that were refused because they would have started too late, by class.",
		}, []string{"priority"}),
		bypassed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_bypassed_total", Help: "Jobs of this process that were admitted beside the limits of their queue and class, by class.",
		}, []string{"priority"}),
		tenants: newTenants(tenants),
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_worker_jobs_total", Help: "Jobs that left the hand of this worker, by how.",
		}, []string{"queue_id", "outcome"}),
		waits: prometheus.NewHistogramVec(native("throttle_queue_wait_time_seconds", "Time from a job's admission to the start of its handler here, by class."),
			[]string{"queue_id", "priority"}),
		runs: prometheus.NewHistogramVec(native("headgate_run_time_seconds", "Time that handlers ran here, by how that ended."),
			[]string{"queue_id", "outcome"}),
		states: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "headgate_guard_state", Help: "How near to its limit the guard of this process has found something: 0 normal, 1 warning, 2 violation.",
		}, []string{"kind"}),
		violations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_guard_violations_total", Help: "How often the guard of this process has found something at its limit that was not before.",
		}, []string{"kind"}),
	}
}

// all returns each of them.
func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.rejected, m.shed, m.shedHere, m.doomed, m.bypassed, m.tenants, m.jobs, m.waits, m.runs, m.states, m.violations}
}

// register returns what a registry has against them.
func (m *metrics) register(to prometheus.Registerer) error {
	var bad []error
	for _, c := range m.all() {
		bad = append(bad, to.Register(c))
	}
	return errors.Join(bad...)
}

// decided counts an answer on a job.
func (m *metrics) decided(job admission.Job, verdict admission.Verdict, err error) {
	result, reason := outcomeOf(verdict, err)
	m.requests.WithLabelValues(result).Inc()
	if reason != admission.ReasonNone {
		m.rejected.WithLabelValues(string(reason)).Inc()
	}
	if reason == admission.ReasonShed { // The policy has each class in its order, and the tier.
		m.shed.WithLabelValues(classLabel(job.Priority), verdict.Detail).Inc()
		if verdict.Local {
			m.shedHere.WithLabelValues(classLabel(job.Priority)).Inc()
		}
	}
	if verdict.Bypassed {
		m.bypassed.WithLabelValues(classLabel(job.Priority)).Inc()
	}
	if reason == admission.ReasonDoomed {
		m.doomed.WithLabelValues(classLabel(job.Priority)).Inc()
	}
	switch {
	case err == nil:
		m.tenants.count(job.Tenant, false, time.Now())
	case reason != admission.ReasonNone:
		m.tenants.count(job.Tenant, true, time.Now())
	}
}

// finished counts a job that left a worker's hand.
func (m *metrics) finished(e worker.Event) {
	m.jobs.WithLabelValues(e.Queue, string(e.Outcome)).Inc()
	if e.RunTime > 0 {
		m.waits.WithLabelValues(e.Queue, classLabel(e.Class)).Observe(e.Wait.Seconds())
		m.runs.WithLabelValues(e.Queue, string(e.Outcome)).Observe(e.RunTime.Seconds())
	}
}

// guarded shows a change that a guard has found.
func (m *metrics) guarded(change worker.GuardChange) {
	m.states.WithLabelValues(string(change.Kind)).Set(float64(change.To))
	violations := m.violations.WithLabelValues(string(change.Kind)) // It is there from the first look on.
	if change.To == worker.GuardViolation {
		violations.Inc()
	}
}

// classLabel keeps the names of the preset classes.
func classLabel(class admission.Priority) string {
	switch class {
	case admission.Critical, admission.High, admission.Medium, admission.Low:
		return string(class)
	}
	return other
}
