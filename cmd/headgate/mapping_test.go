package main

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAMappingIsReadAnew: what a descriptor is changes with the file of Envoy's rate limit service, by writing it and by putting another one in its place; one
// with a mistake is told, and leaves the last in force.
func TestAMappingIsReadAnew(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rls.yaml")
	put := func(key string) {
		text := "domains: {edge: {rules: [{match: [{key: " + key + "}], tenant_from: " + key + "}]}}\n"
		must(t, errors.Join(os.WriteFile(file+".new", []byte(text), 0o600), os.Rename(file+".new", file)))
	}
	put("a")
	log := &lockedBuffer{}
	_, stop := startServe(t, log, "--insecure-no-auth", "--set", "serve.rls.listen=127.0.0.1:0", "--set", "serve.rls.mapping_file="+file, "--set", "serve.limiter.timeout=10s")
	awaitLog(t, log.String, "the rate limit service listens", 1)
	service := ""
	for line := range strings.Lines(log.String()) {
		if event := decode(t, line); event["message"] == "the rate limit service listens" {
			service, _ = event["address"].(string)
		}
	}
	transport := &http.Transport{Protocols: &http.Protocols{}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	knows := func(key string) bool { // A descriptor that a rule is for is told its limit.
		message := "\x0a\x04edge\x12\x0b\x0a\x09\x0a\x01" + key + "\x12\x04acme"
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+service+"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
			strings.NewReader("\x00\x00\x00\x00"+string(rune(len(message)))+message))
		must(t, err)
		r.Header.Set("Content-Type", "application/grpc")
		answer, err := transport.RoundTrip(r)
		must(t, err)
		text, err := io.ReadAll(answer.Body)
		must(t, errors.Join(err, answer.Body.Close()))
		if answer.Trailer.Get("Grpc-Status") != "0" {
			t.Errorf("%v %v", answer.Header, answer.Trailer)
		}
		return strings.Contains(string(text), "tenant")
	}
	in := func(key string) {
		t.Helper()
		for _, one := range []string{"a", "b", "c"} {
			if knows(one) != (one == key) {
				t.Errorf("the mapping of %s is to be in force; %s is known: %t\n%s", key, one, knows(one), log.String())
			}
		}
	}
	in("a")
	put("b")
	awaitLog(t, log.String, "configuration read anew", 1)
	in("b")
	must(t, os.WriteFile(file, []byte("domains: {edge: {rules: [{match: [{key: c}], tenant_from: nobody}]}}\n"), 0o600))
	awaitLog(t, log.String, "configuration is wrong: the old one stays in force", 1)
	if text := log.String(); !strings.Contains(text, "serve.rls.mapping_file") || !strings.Contains(text, "tenant_from") {
		t.Errorf("the mistake is not told: %s", text)
	}
	in("b")
	must(t, os.Remove(file))
	awaitLog(t, log.String, "configuration is wrong: the old one stays in force", 2)
	in("b")
	put("c")
	awaitLog(t, log.String, "configuration read anew", 2)
	in("c")
	stop()
}
