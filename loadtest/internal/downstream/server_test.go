package downstream

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// call returns the status of an answer, 0 where there is none within the time.
func call(t *testing.T, url string, within time.Duration) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

func TestADownstreamDiesHangsAndComesBack(t *testing.T) {
	t.Parallel()
	s, err := Start(t.Context(), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const soon, long = 100 * time.Millisecond, 10 * time.Second
	mend := func() {
		if err := s.Mend(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	url := s.URL()
	if got := call(t, url, long); got != http.StatusNoContent {
		t.Fatalf("alive it answers %d", got)
	}
	s.Die()
	if got := call(t, url, long); got != 0 {
		t.Errorf("dead it answers %d", got)
	}
	mend()
	if got := call(t, url, long); got != http.StatusNoContent || s.URL() != url {
		t.Errorf("back again it answers %d at %s, was at %s", got, s.URL(), url)
	}
	s.Hang()
	if got := call(t, url, soon); got != 0 {
		t.Errorf("hanging it answers %d", got)
	}
	mend()
	if got := call(t, url, long); got != http.StatusNoContent {
		t.Errorf("mended it answers %d", got)
	}
}
