package httplimit_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/httplimit"
)

// TestARefusalHasOneAnswer, whatever Config.Answer does.
func TestARefusalHasOneAnswer(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request, httplimit.Refusal)
		status int
		body   string
	}{
		{"nothing", func(http.ResponseWriter, *http.Request, httplimit.Refusal) {}, 429, `{"type":"https`},
		{"no status", func(w http.ResponseWriter, _ *http.Request, _ httplimit.Refusal) {
			_, _ = io.WriteString(w, "slow down")
		}, 429, "slow down"},
		{"another", func(w http.ResponseWriter, _ *http.Request, _ httplimit.Refusal) { w.WriteHeader(http.StatusTeapot) }, 418, ""},
		{"twice", func(w http.ResponseWriter, r *http.Request, no httplimit.Refusal) {
			httplimit.ErrorObject(w, r, no)
			w.WriteHeader(http.StatusOK)
		}, 429, `{"status":429,"error":"Too Many Requests","message":"Rate limit exceeded for key: tenant","timestamp":"`},
	} {
		server := httptest.NewServer(filter(t, limits(t, each(slow)), httplimit.Config{Tenant: acme, Answer: row.answer}).Wrap(passed))
		for range 3 {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
			check(t, err)
			answer, err := server.Client().Do(request)
			check(t, err)
			body, err := io.ReadAll(answer.Body)
			check(t, err)
			check(t, answer.Body.Close())
			if string(body) == "passed" {
				continue
			}
			if answer.StatusCode != row.status || !strings.HasPrefix(string(body), row.body) || answer.Header.Get("Retry-After") == "" {
				t.Errorf("%s: %d %s %v", row.name, answer.StatusCode, body, answer.Header)
			}
		}
		server.Close()
	}
}

func TestAnErrorObjectTellsOfAnOutage(t *testing.T) {
	t.Parallel()
	r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
	no := httplimit.Refusal{Status: 503, RetryAfter: 1500 * time.Millisecond}
	no.Verdict.Reason = "unavailable"
	httplimit.ErrorObject(w, r, no)
	var body struct {
		Error, Reason string
		RetryAfter    int `json:"retry_after_seconds"`
	}
	check(t, json.Unmarshal(w.Body.Bytes(), &body))
	if w.Code != 503 || w.Header().Get("X-Throttle-Reason") != "unavailable" || body.Error != "Service Unavailable" || body.Reason != "unavailable" || body.RetryAfter != 2 {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// talk sends a request as it stands over a connection of its own, and returns all that comes back until the server says end. With more to
// send it sends that then, and goes on until the server closes.
func talk(t *testing.T, server *httptest.Server, text, end, more string) string {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	check(t, err)
	defer conn.Close()
	check(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.WriteString(conn, text)
	check(t, err)
	var all strings.Builder
	reader := bufio.NewReader(conn)
	for !strings.Contains(all.String(), end) {
		line, err := reader.ReadString('\n')
		all.WriteString(line)
		check(t, err)
	}
	if more != "" {
		_, err = io.WriteString(conn, more)
		check(t, err)
		rest, err := io.ReadAll(reader)
		check(t, err)
		all.Write(rest)
	}
	return all.String()
}

// TestAnUpgradeIsRefusedBeforeItHappens: a connection that is taken over is asked for once; a refused one gets a plain answer.
func TestAnUpgradeIsRefusedBeforeItHappens(t *testing.T) {
	t.Parallel()
	upgrade := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello\n")
		_ = buffered.Flush()
	})
	f := filter(t, limits(t, each(slow)), httplimit.Config{Tenant: acme})
	server := httptest.NewServer(f.Wrap(upgrade))
	defer server.Close()
	const handshake = "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	for range 2 {
		if got := talk(t, server, handshake, "hello\n", ""); !strings.HasPrefix(got, "HTTP/1.1 101 ") || !strings.HasSuffix(got, "hello\n") || strings.Count(got, "HTTP/1.1") != 1 {
			t.Errorf("%q", got)
		}
	}
	if got := talk(t, server, handshake, "\r\n\r\n", ""); !strings.HasPrefix(got, "HTTP/1.1 429 ") || strings.Contains(got, "101") {
		t.Errorf("%q", got)
	}
	if got := f.Stats(); got != (httplimit.Stats{Admitted: 2, Refused: 1}) {
		t.Errorf("%+v", got)
	}
}

// TestARefusedBodyIsNotAskedFor: a client that waits for 100 Continue never sends what would be thrown away.
func TestARefusedBodyIsNotAskedFor(t *testing.T) {
	t.Parallel()
	read := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprintf(w, "read %d\n", n)
	})
	server := httptest.NewServer(filter(t, limits(t, each(slow)), httplimit.Config{Tenant: acme}).Wrap(read))
	defer server.Close()
	const head = "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
	for range 2 { // The body goes with the head, so that one write is enough.
		if got := talk(t, server, head+"12345", "read 5\n", ""); !strings.HasPrefix(got, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ") {
			t.Errorf("%q", got)
		}
	}
	got := talk(t, server, head, "\r\n\r\n", "12345") // What comes all the same is thrown away, and the connection with it.
	if !strings.HasPrefix(got, "HTTP/1.1 429 ") || strings.Contains(got, "100 Continue") || strings.Count(got, "HTTP/1.1") != 1 || !strings.Contains(got, "Connection: close\r\n") {
		t.Errorf("%q", got)
	}
}
