package deliver

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/worker"
)

// FuzzSecrets: secrets that are taken have the size that the specification allows, and are the same in its own form; an
// error quotes nothing.
func FuzzSecrets(f *testing.F) {
	long := strings.Repeat("s", minSecret)
	for _, text := range []string{"", long, long + "\r\n\n" + secretPrefix + base64.StdEncoding.EncodeToString([]byte(long)), secretPrefix + "!" + long, "short", long + "\x00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		secrets, err := ParseSecrets("secret", text)
		if err != nil {
			if _, named := errors.AsType[*admission.FieldError](err); !named || len(text) >= minSecret && strings.Contains(err.Error(), text) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		var lines strings.Builder
		for _, s := range secrets {
			if len(s) < minSecret || len(s) > maxSecret {
				t.Errorf("%q: a secret of %d bytes", text, len(s))
			}
			lines.WriteString(secretPrefix + base64.StdEncoding.EncodeToString(s) + "\n")
		}
		again, err := ParseSecrets("secret", lines.String())
		if err != nil || len(again) != len(secrets) {
			t.Fatalf("%q: %d secrets, and then %d, %v", text, len(secrets), len(again), err)
		}
		for i := range again {
			if string(again[i]) != string(secrets[i]) {
				t.Errorf("%q: secret %d is %q, and then %q", text, i, secrets[i], again[i])
			}
		}
	})
}

// FuzzAnswer: whatever a receiver answers, the delivery succeeds for 2xx alone, a wait it asks for is kept within bounds,
// and what is kept of its words is short, and text.
func FuzzAnswer(f *testing.F) {
	f.Add(200, "", []byte("ok"))
	f.Add(429, "120", []byte("slow down"))
	f.Add(503, "99999999999999999999", []byte{0xff, 0x1b})
	f.Add(503, "Wed, 21 Oct 2035 07:28:00 GMT", []byte{})
	f.Add(429, "-5", []byte(strings.Repeat("é", maxQuote)))
	f.Add(404, "soon", []byte("\x1b[2J"))
	now := time.Date(2031, 5, 4, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, status int, after string, said []byte) {
		if status < 100 || status > 999 {
			return // What net/http lets nobody answer.
		}
		recorder := httptest.NewRecorder()
		recorder.Code = status
		response := recorder.Result()
		response.Header = http.Header{"Retry-After": {after}}
		err := judge(response, said, now)
		if (err == nil) != (status >= 200 && status < 300) {
			t.Errorf("%d: %v", status, err)
		}
		if err != nil && (len(err.Error()) > 4<<10 || !utf8.ValidString(err.Error())) {
			t.Errorf("%d, %q: %q", status, said, err)
		}
		if delay, ok := retryAfter(after, now); ok && (delay < minSnooze || delay > maxSnooze) {
			t.Errorf("%q is %s", after, delay)
		}
	})
}

// FuzzTarget: a URL that is taken is one of HTTP with a host, and not one that names an address of this network; an error
// quotes no password.
func FuzzTarget(f *testing.F) {
	for _, url := range []string{
		"https://example.com/hook", "http://127.0.0.1:1", "http://[::1]/", "http://[::ffff:10.0.0.1]/", "https://user:SECRET@example.com/#x", "ftp://x", "http://", "//host",
		"http://169.254.169.254/latest", "http://user:SECRET@[::1", "http://0x7f.1/",
	} {
		f.Add(url)
	}
	const secret = "hunter2hunter2"
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ReplaceAll(text, "SECRET", secret)
		target, err := parseTarget(receiverConfig{url: text, flag: "--deliver", allowFlag: "--allow-private"})
		if err != nil {
			user, _, _ := strings.Cut(text, "@")
			if _, named := errors.AsType[*admission.FieldError](err); !named || strings.Contains(user, ":"+secret) && strings.Contains(err.Error(), secret) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if target.Scheme != "http" && target.Scheme != "https" || target.Hostname() == "" {
			t.Errorf("%q is taken for %s", text, target)
		}
	})
}

// FuzzEvent: whatever a job holds, its event is JSON in UTF-8, and its data is the payload.
func FuzzEvent(f *testing.F) {
	for _, seed := range []struct{ payload, contentType string }{
		{`{"a": [1, 2]}`, ""},
		{`{"a": 1}`, "text/plain; charset=latin1"},
		{"plain", ""},
		{"\"\xff\"", ""},
		{"\"\xff\"", "application/problem+json"},
		{"", "x/y"},
		{"null", ""},
		{"1", "\xff/;="},
		{"\"\u2028<&\"", "application/json"},
	} {
		f.Add([]byte(seed.payload), seed.contentType)
	}
	f.Fuzz(func(t *testing.T, payload []byte, contentType string) {
		job := worker.Job[[]byte]{Job: admission.NewJob("acme", "mail", "welcome", payload)}
		job.Headers = map[string]string{"Content-Type": contentType, "traceparent": contentType}
		body, err := encodeEvent(&job)
		if err != nil {
			t.Fatal(err)
		}
		var read struct {
			Data       json.RawMessage `json:"data"`
			DataBase64 []byte          `json:"data_base64"`
		}
		if err := json.Unmarshal(body, &read); err != nil || !utf8.Valid(body) {
			t.Fatalf("%q: %q, %v", payload, body, err)
		}
		got := read.DataBase64
		if read.Data != nil {
			var want bytes.Buffer
			if err := json.Compact(&want, payload); err != nil {
				t.Fatalf("%q is data: %v", payload, err)
			}
			got, payload = read.Data, want.Bytes()
		}
		if !bytes.Equal(got, payload) {
			t.Errorf("the data is %q, want %q", got, payload)
		}
	})
}
