package deliver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// verified does what a receiver does, by the specification: any of the signatures must be that of the secret.
func verified(r *http.Request, body []byte, secret string) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(r.Header.Get("webhook-id") + "." + r.Header.Get("webhook-timestamp") + "." + string(body)))
	sum := mac.Sum(nil)
	for signature := range strings.FieldsSeq(r.Header.Get("webhook-signature")) {
		version, text, _ := strings.Cut(signature, ",")
		got, err := base64.StdEncoding.DecodeString(text)
		if version == "v1" && err == nil && hmac.Equal(got, sum) {
			return true
		}
	}
	return false
}

func TestTheSignatureOfTheSpecification(t *testing.T) {
	t.Parallel()
	secrets, err := ParseSecrets("secret", testSecret)
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{}
	sign(header, secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if got := header.Get("Webhook-Signature"); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("got %s", got)
	}
}

func TestRequestsAreSigned(t *testing.T) {
	t.Parallel()
	other := "whsec_" + base64.StdEncoding.EncodeToString([]byte("another key of thirty two bytes!"))
	secrets, err := ParseSecrets("secret", testSecret+"\n\n  "+other+"\r\n")
	if err != nil || len(secrets) != 2 {
		t.Fatalf("%d secrets: %v", len(secrets), err)
	}
	for _, events := range []bool{false, true} {
		type request struct {
			*http.Request
			body []byte
		}
		got := make(chan request, 1)
		hook := serve(t, WebhookConfig{Secrets: secrets, CloudEvents: events}, func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			got <- request{r, body}
		})
		if err := hook.Handle(t.Context(), testJob(`{"to":"ada"}`)); err != nil {
			t.Fatal(err)
		}
		r := <-got
		if !verified(r.Request, r.body, testSecret) || !verified(r.Request, r.body, other) {
			t.Errorf("not signed by both: %v", r.Header)
		}
		if verified(r.Request, append(r.body, ' '), testSecret) || verified(r.Request, r.body, "whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 32))) {
			t.Error("anything passes")
		}
		at, err := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64)
		if age := time.Since(time.Unix(at, 0)); err != nil || age < -time.Minute || age > time.Minute {
			t.Errorf("sent %s ago: %v", age, err)
		}
		if strings.Contains(r.Header.Get("webhook-id"), ".") {
			t.Errorf("the id %s holds a full stop", r.Header.Get("webhook-id"))
		}
	}
}

func TestSecretsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "\n", "short", "whsec_!!!!", "whsec_c2hvcnQ=", strings.Repeat("x", 65)} {
		if secrets, err := ParseSecrets("secret", text); err == nil || text != "" && strings.TrimSpace(text) != "" && strings.Contains(err.Error(), text) {
			t.Errorf("%q gave %d secrets, %v", text, len(secrets), err)
		}
	}
}

func TestCloudEvents(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		payload, own string
		want         map[string]any // besides the facts
	}{
		{`{"to":"<ada>"}`, "", map[string]any{"datacontenttype": "application/json", "data": map[string]any{"to": "<ada>"}}},
		{"not { json", "", map[string]any{"datacontenttype": "application/octet-stream", "data_base64": "bm90IHsganNvbg=="}},
		{"7", "text/plain; charset=utf-8", map[string]any{"datacontenttype": "text/plain; charset=utf-8", "data_base64": "Nw=="}},
		{"", "", map[string]any{}},
	} {
		job := testJob(row.payload)
		job.Headers = map[string]string{"Content-Type": row.own, "traceparent": "00-ab-cd-01"}
		text, err := encodeEvent(&job)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{
			"specversion": "1.0", "id": "w.1", "source": "/headgate/acme", "type": "welcome", "time": "2031-05-04T11:00:00Z",
			"headgatetenant": "acme", "headgatequeue": "mail", "headgatepriority": "medium", "headgateattempt": 2.0, "headgatemaxattempts": 5.0,
			"headgatedownstream": "smtp", "headgatedeadline": "2031-05-04T12:00:00Z", "traceparent": "00-ab-cd-01",
		}
		maps.Copy(want, row.want)
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		if string(a) != string(b) {
			t.Errorf("got %s\nwant %s", a, b)
		}
	}
}
