package deliver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/worker"
)

// patience bounds what must end by itself, on a machine that does other things too.
const patience = 30 * time.Second

func testJob(payload string) worker.Job[[]byte] {
	job := admission.NewJob("acme", "mail", "welcome", []byte(payload))
	job.ID, job.MaxAttempts, job.Downstream = "w.1", 5, "smtp"
	job.Deadline = time.Date(2031, 5, 4, 12, 0, 0, 0, time.UTC)
	job.Headers = map[string]string{"trace": "abc", "odd:name": "50%\n"}
	return worker.Job[[]byte]{Job: job, Args: job.Payload, Attempt: 2, Suspect: true, Lost: 1, Admitted: time.Date(2031, 5, 4, 11, 0, 0, 0, time.UTC)}
}

// serve runs a server on loopback and returns a Webhook to it.
func serve(t *testing.T, config WebhookConfig, answer http.HandlerFunc) *Webhook {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	config.URL, config.AllowPrivate = server.URL+"/jobs?token=sesame", true
	hook, err := NewWebhook(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hook.client.CloseIdleConnections)
	return hook
}

func TestEachAnswerIsJudged(t *testing.T) {
	t.Parallel()
	date := func(from time.Duration) string { return time.Now().Add(from).UTC().Format(http.TimeFormat) }
	for _, row := range []struct {
		status     int
		retryAfter string
		want       string // the beginning of the error; empty for none
	}{
		{200, "", ""},
		{204, "", ""},
		{299, "7", ""},
		{429, "7", "snoozed for 7s"},
		{503, "7", "snoozed for 7s"},
		{429, "0", "snoozed for 1s"},
		{429, "99999", "snoozed for 1h0m0s"},
		{429, "99999999999999999999999", "snoozed for 1h0m0s"},
		{429, date(-time.Hour), "snoozed for 1s"},
		{503, date(24 * time.Hour), "snoozed for 1h0m0s"},
		{503, date(30 * time.Minute), "snoozed for "},
		{429, "soon", "answered 429 Too Many Requests: no"},
		{429, "-7", "answered 429"},
		{429, "", "answered 429"},
		{503, "", "answered 503"},
		{400, "", "discarded: answered 400 Bad Request: no"},
		{404, "7", "discarded: answered 404"},
		{410, "", "discarded: answered 410"},
		{418, "", "discarded: answered 418"},
		{408, "", "answered 408"},
		{425, "", "answered 425"},
		{500, "7", "answered 500"},
		{502, "", "answered 502"},
		{599, "", "answered 599"},
		{304, "", "answered 304"},
	} {
		t.Run(fmt.Sprintf("%d %s", row.status, row.retryAfter), func(t *testing.T) {
			t.Parallel()
			hook := serve(t, WebhookConfig{Timeout: patience}, func(w http.ResponseWriter, _ *http.Request) {
				if row.retryAfter != "" {
					w.Header().Set("Retry-After", row.retryAfter)
				}
				w.WriteHeader(row.status)
				_, _ = io.WriteString(w, "no")
			})
			err := hook.Handle(t.Context(), testJob("{}"))
			if throttled := worker.IsThrottled(err); throttled != (row.status == http.StatusTooManyRequests) {
				t.Errorf("throttled: %v", throttled)
			}
			got := fmt.Sprint(err)
			if row.want == "" && got != "<nil>" || !strings.HasPrefix(got, row.want) {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestAReceiverAsksForLess by a level with any answer, or by Retry-After with a success.
func TestAReceiverAsksForLess(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		status            int
		level, retryAfter string
		want              admission.PressureLevel
		hold              time.Duration
		bad               string
	}{
		{200, "", "", admission.PressureNone, 0, ""},
		{200, "NONE", "30", admission.PressureNone, 30 * time.Second, ""},
		{200, "LOW", "", admission.PressureLow, 0, ""},
		{503, "critical", "", admission.PressureCritical, 0, ""},
		{429, "HIGH", "7", admission.PressureHigh, 7 * time.Second, ""},
		{202, "", "7", admission.PressureHigh, 7 * time.Second, ""},
		{204, "MEDIUM", "99999", admission.PressureMedium, time.Hour, ""},
		{429, "", "7", admission.PressureNone, 7 * time.Second, ""},
		{200, "a lot", "", admission.PressureNone, 0, `invalid X-Backpressure-Level "a lot": allowed is NONE, LOW, MEDIUM, HIGH or CRITICAL`},
	} {
		response := &http.Response{StatusCode: row.status, Header: http.Header{}}
		response.Header.Set("X-Backpressure-Level", row.level)
		response.Header.Set("Retry-After", row.retryAfter)
		level, hold, err := pushbackOf(response, time.Now())
		if level != row.want || hold != row.hold || row.bad == "" && err != nil || row.bad != "" && (err == nil || err.Error() != row.bad) {
			t.Errorf("%+v: got %s for %s, %v", row, level, hold, err)
		}
	}
}

func TestADateIsReadByTheClock(t *testing.T) {
	t.Parallel()
	now := time.Date(2031, 5, 4, 12, 0, 0, 0, time.UTC)
	for _, text := range []string{"Sun, 04 May 2031 12:10:00 GMT", "Sunday, 04-May-31 12:10:00 GMT", "Sun May  4 12:10:00 2031"} {
		if delay, ok := retryAfter(text, now); !ok || delay != 10*time.Minute {
			t.Errorf("%s is in %s, %v", text, delay, ok)
		}
	}
}

func TestAReceiverSeesTheJob(t *testing.T) {
	t.Parallel()
	got := make(chan *http.Request, 1)
	hook := serve(t, WebhookConfig{}, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Header.Set("Body", string(body))
		got <- r
	})
	job := testJob(`{"to":"ada"}`)
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	job.Headers["traceparent"], job.Headers["tracestate"] = trace, "a\r\nb"
	if err := hook.Handle(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	r := <-got
	for name, want := range map[string]string{
		"Traceparent": trace, "Headgate-Header-Traceparent": trace, "Tracestate": "", "Headgate-Header-Tracestate": "a%0D%0Ab",
		"Body": `{"to":"ada"}`, "Content-Type": "application/json", "User-Agent": "headgate", "Headgate-Id": "w.1", "Headgate-Tenant": "acme",
		"Headgate-Queue": "mail", "Headgate-Type": "welcome", "Headgate-Priority": "medium", "Headgate-Attempt": "2", "Headgate-Max-Attempts": "5",
		"Headgate-Lost": "1", "Headgate-Suspect": "true", "Headgate-Cost": "1", "Headgate-Downstream": "smtp", "Headgate-Deadline": "2031-05-04T12:00:00Z",
		"Headgate-Admitted": "2031-05-04T11:00:00Z", "Headgate-Header-Trace": "abc", "Headgate-Header-Odd%3aname": "50%25%0A",
		"Webhook-Id": "acme:w%2E1", "Webhook-Signature": "",
	} {
		if r.Header.Get(name) != want {
			t.Errorf("%s is %q, want %q in %v", name, r.Header.Get(name), want, r.Header)
		}
	}
	if r.Method != http.MethodPost || r.URL.String() != "/jobs?token=sesame" {
		t.Errorf("got %s %s", r.Method, r.URL)
	}
}

// quiet checks that an error tells nothing that should not be told.
func quiet(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
		return
	}
	failure, ok := errors.AsType[*FailureError](err)
	if !ok || strings.Contains(err.Error(), "sesame") || strings.Contains(failure.Brief(), "payload") {
		t.Errorf("got %#v", err)
	}
}

func TestRedirectsAreRefused(t *testing.T) {
	t.Parallel()
	var followed atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	t.Cleanup(elsewhere.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		hook := serve(t, WebhookConfig{}, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, status) })
		quiet(t, hook.Handle(t.Context(), testJob("{}")), "redirects are not followed")
	}
	if n := followed.Load(); n > 0 {
		t.Errorf("%d were followed", n)
	}
}

// TestASlowLorisIsLeft meets a receiver that says one byte at a time and never comes to an end.
func TestASlowLorisIsLeft(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{
		"in the headers": "HTTP/1.1 500 Slow\r\nX-Slow: ",
		"in the body":    "HTTP/1.1 500 Slow\r\nContent-Length: 100000\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // It is closed below.
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = listener.Close() })
			go func() {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer func() { _ = conn.Close() }()
				_, _ = io.WriteString(conn, first)
				tick := time.NewTicker(20 * time.Millisecond)
				defer tick.Stop()
				for range tick.C {
					if _, err := io.WriteString(conn, "x"); err != nil {
						return
					}
				}
			}()
			hook, err := NewWebhook(WebhookConfig{URL: "http://" + listener.Addr().String(), AllowPrivate: true, Timeout: 300 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- hook.Handle(t.Context(), testJob("payload")) }()
			select {
			case err := <-done:
				if err == nil {
					t.Error("it took that for an answer")
				}
			case <-time.After(patience):
				t.Error("it waits for the end")
			}
		})
	}
}

func TestAHugeAnswerIsNotRead(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	endless := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			block := []byte(strings.Repeat("payload ", 4<<10))
			for r.Context().Err() == nil && sent.Load() < 1<<30 {
				n, err := w.Write(block)
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		}
	}
	if err := serve(t, WebhookConfig{Timeout: patience}, endless(200)).Handle(t.Context(), testJob("{}")); err != nil {
		t.Error(err)
	}
	err := serve(t, WebhookConfig{Timeout: patience}, endless(500)).Handle(t.Context(), testJob("{}"))
	quiet(t, err, "answered 500 Internal Server Error: payload payload")
	if len(err.Error()) > 1<<10 {
		t.Errorf("%d bytes of it are kept", len(err.Error()))
	}
	if n := sent.Load(); n > 256<<20 {
		t.Errorf("it took %d bytes", n)
	}
	hook := serve(t, WebhookConfig{Timeout: patience}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Huge", strings.Repeat("x", 2*maxAnswerHeaders))
	})
	quiet(t, hook.Handle(t.Context(), testJob("{}")), "response headers exceeded")
}

func TestNoAnswerIsAFailure(t *testing.T) {
	t.Parallel()
	hook := serve(t, WebhookConfig{}, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	})
	quiet(t, hook.Handle(t.Context(), testJob("{}")), "post to http://127.0.0.1")
	hook = serve(t, WebhookConfig{Timeout: 200 * time.Millisecond}, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	quiet(t, hook.Handle(t.Context(), testJob("{}")), "it took too long")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(worker.ErrDraining)
	if err := hook.Handle(ctx, testJob("{}")); !errors.Is(err, worker.ErrDraining) {
		t.Errorf("got %v", err)
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS10} //nolint:gosec // The client is to refuse it.
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	hook, err := NewWebhook(WebhookConfig{URL: server.URL, AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hook.client.CloseIdleConnections)
	quiet(t, hook.Handle(t.Context(), testJob("{}")), "certificate")
	transport := hook.client.Transport.(*http.Transport)
	transport.TLSClientConfig.RootCAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	if err := hook.Handle(t.Context(), testJob("{}")); err != nil {
		t.Error(err)
	}
	transport.TLSClientConfig.MaxVersion = tls.VersionTLS11
	transport.CloseIdleConnections()
	quiet(t, hook.Handle(t.Context(), testJob("{}")), "tls: ")
}
