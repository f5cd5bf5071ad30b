package spans

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

// TestACollectorThatIsBusyIsAskedAgain sends one span to collectors that answer each request by the next of some codes.
func TestACollectorThatIsBusyIsAskedAgain(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		answers []int
		lost    string
	}{
		"takes it":                {[]int{200}, ""},
		"is busy, then takes it":  {[]int{429, 503, 202}, ""},
		"is told something wrong": {[]int{400}, "the collector answered 400 Bad Request"},
		"wants other credentials": {[]int{401}, "the collector answered 401 Unauthorized"},
		"sends elsewhere":         {[]int{307}, "the collector answered 307 Temporary Redirect"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, sent := 0, ""
			collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if sent != "" && sent != string(body) {
					t.Error("another body is sent the next time")
				}
				sent = string(body)
				w.Header().Set("Retry-After", "0")
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(row.answers[min(asked, len(row.answers)-1)])
				asked++
			}))
			defer collector.Close()
			var log strings.Builder
			e, err := Open(Config{Endpoint: collector.URL, SampleRatio: 1, Service: "test"}, zerolog.New(&log))
			if err != nil {
				t.Fatal(err)
			}
			_, span := e.Provider().Tracer("test").Start(t.Context(), "work")
			span.End()
			err = e.provider.ForceFlush(t.Context())
			if asked != len(row.answers) || !strings.Contains(sent, "work") {
				t.Errorf("asked %d times, sent %q", asked, sent)
			}
			if (err == nil) != (row.lost == "") || err != nil && !strings.Contains(err.Error(), row.lost) {
				t.Errorf("%v, want %q", err, row.lost)
			}
			e.Close(t.Context())
		})
	}
}

func TestWithoutAnEndpointThereIsNothing(t *testing.T) {
	t.Parallel()
	e, err := Open(Config{}, zerolog.Nop())
	if err != nil || e.Provider() != nil {
		t.Errorf("%v, %v", e.Provider(), err)
	}
	e.Close(t.Context())
	if _, err := Open(Config{Endpoint: "http://[sesame"}, zerolog.Nop()); err == nil || strings.Contains(err.Error(), "sesame") {
		t.Error(err)
	}
}
