package examples_test

import (
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

//snippet:begin limit

// limited lets through what the tenant's limits allow.
func limited(limiter *headgate.Limiter, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := limiter.Check(r.Context(), headgate.Request{Tenant: r.Header.Get("X-Customer"), Queue: "search"})
		var no *headgate.Refusal
		switch {
		case err == nil:
			next.ServeHTTP(w, r)
		case errors.Is(err, headgate.ErrInvalid):
			http.Error(w, err.Error(), http.StatusBadRequest)
		case errors.As(err, &no) && no.Reason != headgate.ReasonUnavailable:
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(no.RetryAfter.Seconds()))))
			http.Error(w, err.Error(), http.StatusTooManyRequests)
		default: // Redis gave no answer, and WithoutRedis is "closed"
			http.Error(w, "try again soon", http.StatusServiceUnavailable)
		}
	})
}

//snippet:end

func TestAnHTTPHandlerIsLimited(t *testing.T) {
	t.Parallel()
	hg := open(t)
	ctx := t.Context()
	check(t, smallTier(ctx, hg))
	//snippet:begin limiter
	limiter, err := hg.Limiter(headgate.LimiterConfig{WithoutRedis: "open"})
	//snippet:end
	check(t, err)
	check(t, limiter.Close(ctx))
	limiter, err = hg.Limiter(headgate.LimiterConfig{Timeout: 10 * time.Second})
	check(t, err)
	defer func() { check(t, limiter.Close(ctx)) }()
	handler := limited(limiter, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, want := range []int{200, 200, 429} {
		request, answer := httptest.NewRequestWithContext(ctx, http.MethodGet, "/search", http.NoBody), httptest.NewRecorder()
		request.Header.Set("X-Customer", "acme")
		handler.ServeHTTP(answer, request)
		if after, _ := strconv.Atoi(answer.Header().Get("Retry-After")); answer.Code != want || want == 429 && (after < 60 || after > 3600) {
			t.Errorf("%d, want %d: %v", answer.Code, want, answer.Header())
		}
	}
	away := open(t)
	closed, err := away.Limiter(headgate.LimiterConfig{WithoutRedis: "closed"})
	check(t, err)
	check(t, away.Close()) // As if Redis were away.
	for customer, want := range map[string]int{"a b": 400, "acme": 503} {
		request, answer := httptest.NewRequestWithContext(ctx, http.MethodGet, "/search", http.NoBody), httptest.NewRecorder()
		request.Header.Set("X-Customer", customer)
		limited(closed, http.NotFoundHandler()).ServeHTTP(answer, request)
		if answer.Code != want {
			t.Errorf("%q: %d, want %d: %s", customer, answer.Code, want, answer.Body)
		}
	}
}
