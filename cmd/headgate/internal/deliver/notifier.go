package deliver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/scheduler"
)

// NotifierConfig says where transitions of circuit breakers, rates that are not usual and triggers are posted. Only URL has no default.
type NotifierConfig struct {
	// URL takes the POSTs, http or https.
	URL string
	// Secrets sign the requests; without any they are not signed.
	Secrets []Secret
	// AllowPrivate lets them go to addresses that are not of the public internet.
	AllowPrivate bool
	// Deployment names it among those that post to the same URL: the prefix of its keys.
	Deployment string
}

// notifyTimeout bounds a POST as a whole.
const notifyTimeout = 5 * time.Second

// Notifier posts transitions of circuit breakers, rates that are not usual and triggers. Its methods may be called from several goroutines.
type Notifier struct {
	*receiver

	deployment string
}

// NewNotifier returns a Notifier. It sends nothing yet.
func NewNotifier(config NotifierConfig) (*Notifier, error) {
	to, err := newReceiver(receiverConfig{
		url: config.URL, secrets: config.Secrets, allowPrivate: config.AllowPrivate, connections: 1,
		flag: "--notify", allowFlag: "--notify-allow-private",
	})
	if err != nil {
		return nil, err
	}
	return &Notifier{receiver: to, deployment: config.Deployment}, nil
}

// Notify posts one transition as a CloudEvent. It is a scheduler.Config.OnBreaker: nil for a 2xx, a *scheduler.RetryError
// where the answer has a Retry-After that counts, any other error for all else.
func (n *Notifier) Notify(ctx context.Context, t scheduler.Transition) error {
	return n.tell(ctx, "breaker", notice{
		ID: t.ID, Source: "/headgate/breakers/" + n.deployment, Type: "headgate.breaker." + t.To.String(), Subject: t.Downstream, Time: instant(t.At),
		Data: change{
			Downstream: t.Downstream, From: t.From.String(), To: t.To.String(), Cause: t.Cause, Reason: t.Reason, Until: instant(t.Until),
			Period: t.Period, Voters: t.Workers, Callers: t.Callers,
		},
	})
}

// NotifyAnomaly posts one rate that is not usual as a CloudEvent. It is a scheduler.Config.OnAnomaly, and answers as Notify does.
func (n *Notifier) NotifyAnomaly(ctx context.Context, a scheduler.Anomaly) error {
	return n.tell(ctx, "anomaly", notice{
		ID: a.ID, Source: "/headgate/anomalies/" + n.deployment, Type: "headgate.anomaly." + a.Kind, Subject: strings.TrimSuffix(a.Of+":"+a.Name, ":"), Time: instant(a.At),
		Data: oddRate{
			Kind: a.Kind, Of: a.Of, Name: a.Name, Minute: instant(a.Minute), Rate: a.Rate, Usual: a.Usual, Deviation: a.Deviation, Score: a.Score,
		},
	})
}

// NotifyTrigger posts one trigger that begins to act, or acts no more, as a CloudEvent. It is a scheduler.Config.OnTrigger, and answers as Notify does.
func (n *Notifier) NotifyTrigger(ctx context.Context, e scheduler.TriggerEvent) error {
	word := "cleared"
	if e.Active {
		word = "active"
	}
	return n.tell(ctx, "trigger", notice{
		ID: e.ID, Source: "/headgate/triggers/" + n.deployment, Type: "headgate.trigger." + word, Subject: e.Name, Time: instant(e.At),
		Data: turn{Name: e.Name, Active: e.Active, Why: e.Why},
	})
}

// turn is what the event of a trigger tells.
type turn struct {
	Name   string `json:"name"`
	Active bool   `json:"active"`
	Why    string `json:"why"`
}

// tell posts an event about what.
func (n *Notifier) tell(ctx context.Context, what string, event notice) error {
	ctx, cancel := context.WithTimeoutCause(ctx, notifyTimeout, errTimeout)
	defer cancel()
	body, err := event.encode()
	if err != nil {
		return fmt.Errorf("encode %s: %w", what, err)
	}
	// The same at each try and for no other event.
	id := strings.ReplaceAll(what+":"+n.deployment+":"+event.ID, ".", "%2E")
	request, err := n.request(ctx, typeEvent, id, body)
	if err != nil {
		return err
	}
	response, _, err := n.post(request)
	if err != nil {
		return err
	}
	status := response.StatusCode
	if status >= 200 && status < 300 {
		return nil
	}
	failure := &FailureError{brief: "post to " + n.String() + ": answered " + statusText(status)}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		if delay, ok := retryAfter(response.Header.Get("Retry-After"), time.Now()); ok {
			return &scheduler.RetryError{After: delay, Err: failure}
		}
	}
	return failure
}

// notice is a CloudEvent in structured mode.
type notice struct {
	SpecVersion     string `json:"specversion"`
	ID              string `json:"id"`
	Source          string `json:"source"`
	Type            string `json:"type"`
	Subject         string `json:"subject"`
	Time            string `json:"time"`
	DataContentType string `json:"datacontenttype"`
	Data            any    `json:"data"`
}

// change is what the event of a transition tells.
type change struct {
	Downstream string `json:"downstream"`
	From       string `json:"from"`
	To         string `json:"to"`
	Cause      string `json:"cause"`
	Reason     string `json:"reason,omitempty"` // of the operator
	Until      string `json:"until,omitempty"`  // when To ends by time alone
	// Period grows with each transition of the downstream: it tells an old word from a new one.
	Period uint64 `json:"period"`
	// Voters is how many workers voted for opening, of Callers that called the downstream.
	Voters  int `json:"voters"`
	Callers int `json:"callers"`
}

// oddRate is what the event of an anomaly tells.
type oddRate struct {
	Kind      string  `json:"kind"`
	Of        string  `json:"of"`
	Name      string  `json:"name,omitempty"`
	Minute    string  `json:"minute"`
	Rate      float64 `json:"rate"`
	Usual     float64 `json:"usual"`
	Deviation float64 `json:"deviation,omitempty"` // these two not of a scope_scan, this one not of a near_limit
	Score     float64 `json:"score,omitempty"`
}

func (e notice) encode() ([]byte, error) {
	e.SpecVersion, e.DataContentType = "1.0", typeJSON
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(e); err != nil {
		return nil, err
	}
	return body.Bytes(), nil
}
