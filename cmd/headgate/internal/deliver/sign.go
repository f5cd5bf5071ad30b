package deliver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

// Secret is a key that requests are signed with, by version 1 of the Standard Webhooks specification
// (github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md).
type Secret []byte

// The size of a Secret in bytes that the specification allows.
const (
	minSecret = 24
	maxSecret = 64
)

// secretPrefix begins a secret in the specification's own form; base64 follows.
const secretPrefix = "whsec_"

// ParseSecrets reads secrets, one a line: "whsec_" and base64, or else the bytes of the line as they are. Several make
// several signatures, so that a receiver may change from one to the next. Errors say by name where they are from, and quote nothing.
func ParseSecrets(name, text string) ([]Secret, error) {
	var secrets []Secret
	var bad []error
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		secret := Secret(line)
		if encoded, ok := strings.CutPrefix(line, secretPrefix); ok {
			decoded, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				bad = append(bad, secretError(name, number, "not base64 after "+secretPrefix))
				continue
			}
			secret = decoded
		}
		if len(secret) < minSecret || len(secret) > maxSecret {
			bad = append(bad, secretError(name, number, strconv.Itoa(len(secret))+" bytes"))
			continue
		}
		secrets = append(secrets, secret)
	}
	if len(secrets)+len(bad) == 0 {
		bad = append(bad, secretError(name, 1, "empty"))
	}
	return secrets, errors.Join(bad...)
}

func secretError(name string, line int, value string) error {
	return &admission.FieldError{
		Field: fmt.Sprintf("%s in line %d", name, line), Value: "(" + value + ")",
		Allowed: fmt.Sprintf("%d to %d random bytes, as they are or as %sBASE64", minSecret, maxSecret, secretPrefix),
	}
}

// messageID returns the webhook-id of a job, the same at each attempt and for no other job. The specification forbids
// full stops, which separate what is signed: else a tenant's id could pass for an id and a timestamp.
func messageID(key admission.Key) string {
	return strings.ReplaceAll(key.String(), ".", "%2E") // A key holds no '%', so no two become one.
}

// sign writes the headers of the specification. Without secrets only the signature is missing.
func sign(header http.Header, secrets []Secret, id string, at time.Time, body []byte) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	header.Set("Webhook-Id", id)
	header.Set("Webhook-Timestamp", timestamp)
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(id + "." + timestamp + "."))
		mac.Write(body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	if len(signatures) > 0 {
		header.Set("Webhook-Signature", strings.Join(signatures, " "))
	}
}
