package deliver

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/scheduler"
)

func testTransition() scheduler.Transition {
	return scheduler.Transition{
		ID: "1700000000000-1", Downstream: "smtp", From: breaker.Closed, To: breaker.Open, Period: 7, Cause: "failure rate",
		Workers: 2, Callers: 3, At: time.Date(2031, 5, 4, 12, 0, 0, 0, time.UTC), Until: time.Date(2031, 5, 4, 12, 1, 0, 0, time.UTC),
	}
}

// notifierTo runs a server on loopback and returns a Notifier to it.
func notifierTo(t *testing.T, answer http.HandlerFunc) *Notifier {
	t.Helper()
	secrets, err := ParseSecrets("secret", testSecret)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	n, err := NewNotifier(NotifierConfig{URL: server.URL + "/hook?token=sesame", Secrets: secrets, AllowPrivate: true, Deployment: "hg.1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.client.CloseIdleConnections)
	return n
}

func TestATransitionIsPostedAsASignedEvent(t *testing.T) {
	t.Parallel()
	type request struct {
		*http.Request
		body []byte
	}
	got := make(chan request, 2)
	n := notifierTo(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r, body}
	})
	forced := testTransition()
	forced.Cause, forced.Reason, forced.Until, forced.To = "reset", "<over>", time.Time{}, breaker.Closed
	for _, transition := range []scheduler.Transition{testTransition(), forced} {
		if err := n.Notify(t.Context(), transition); err != nil {
			t.Fatal(err)
		}
	}
	wants := []map[string]any{
		{"type": "headgate.breaker.open", "data": map[string]any{
			"downstream": "smtp", "from": "closed", "to": "open", "cause": "failure rate", "until": "2031-05-04T12:01:00Z",
			"period": 7.0, "voters": 2.0, "callers": 3.0,
		}},
		{"type": "headgate.breaker.closed", "data": map[string]any{
			"downstream": "smtp", "from": "closed", "to": "closed", "cause": "reset", "reason": "<over>", "period": 7.0, "voters": 2.0, "callers": 3.0,
		}},
	}
	for _, want := range wants {
		r := <-got
		maps.Copy(want, map[string]any{
			"specversion": "1.0", "id": "1700000000000-1", "source": "/headgate/breakers/hg.1", "subject": "smtp", "time": "2031-05-04T12:00:00Z",
			"datacontenttype": "application/json",
		})
		var event map[string]any
		if err := json.Unmarshal(r.body, &event); err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(event)
		b, _ := json.Marshal(want)
		if string(a) != string(b) {
			t.Errorf("got %s\nwant %s", a, b)
		}
		if !verified(r.Request, r.body, testSecret) || verified(r.Request, append(r.body, ' '), testSecret) {
			t.Errorf("not signed: %v", r.Header)
		}
		if r.Method != http.MethodPost || r.URL.String() != "/hook?token=sesame" || r.Header.Get("Webhook-Id") != "breaker:hg%2E1:1700000000000-1" ||
			r.Header.Get("Content-Type") != typeEvent {
			t.Errorf("got %s %s %v", r.Method, r.URL, r.Header)
		}
	}
}

func TestAnswersToATransitionAreJudged(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		status     int
		retryAfter string
		want       string        // the end of the error; empty for none
		after      time.Duration // what it asks for
	}{
		{200, "", "", 0},
		{204, "7", "", 0},
		{302, "", "answered 302 Found", 0},
		{400, "", "answered 400 Bad Request", 0},
		{410, "9", "answered 410 Gone", 0},
		{429, "", "answered 429 Too Many Requests", 0},
		{429, "7", "answered 429 Too Many Requests", 7 * time.Second},
		{503, "99999", "answered 503 Service Unavailable", time.Hour},
		{500, "7", "answered 500 Internal Server Error", 0},
	} {
		n := notifierTo(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", row.retryAfter)
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(row.status)
			_, _ = io.WriteString(w, "secret thoughts")
		})
		err := n.Notify(t.Context(), testTransition())
		if row.want == "" {
			if err != nil {
				t.Errorf("%d: %v", row.status, err)
			}
			continue
		}
		after := time.Duration(0)
		if wish, ok := errors.AsType[*scheduler.RetryError](err); ok {
			after = wish.After
		}
		if err == nil || !strings.HasSuffix(err.Error(), row.want) || strings.Contains(err.Error(), "sesame") || after != row.after {
			t.Errorf("%d: got %v after %s", row.status, err, after)
		}
	}
}

func TestTransitionsGoToPublicAddressesOnly(t *testing.T) {
	t.Parallel()
	_, err := NewNotifier(NotifierConfig{URL: "http://10.1.2.3/"})
	field, ok := errors.AsType[*admission.FieldError](err)
	if !ok || field.Field != "--notify" || !strings.Contains(field.Allowed, "--notify-allow-private") {
		t.Errorf("got %v", err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was reached") }))
	t.Cleanup(server.Close)
	n, err := NewNotifier(NotifierConfig{URL: strings.Replace(server.URL, "127.0.0.1", "localhost", 1)})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{n.Notify(t.Context(), testTransition()), n.Check(t.Context())} {
		if _, ok := errors.AsType[*RefusedAddressError](err); !ok || !strings.Contains(err.Error(), "--notify-allow-private") {
			t.Errorf("got %v", err)
		}
	}
}
