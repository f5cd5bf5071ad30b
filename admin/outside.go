package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admin/internal/problem"
)

// requestIDHeader names a request, by the caller or by the server.
const requestIDHeader = "X-Request-Id"

// call is what is known of a request while it is answered.
type call struct {
	id string
	// who and pattern are for the log; they are set on the way.
	who, pattern string
	// tenant is what the bytes of the answer are counted by; empty for who is bound to none.
	tenant string
	// callerID and callerAgent are the caller's own words, also for the log.
	callerID, callerAgent string
	// reason is why the credential was refused.
	reason error
	failed error
	// crowded says that the connection is one too many of its tenant.
	crowded bool
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return &call{}
	}
	return c
}

// recorder notes the status.
type recorder struct {
	http.ResponseWriter

	status int
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(text []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(text)
}

// outside is what every call passes, also one that has no route.
func (s *Server) outside(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		c := &call{id: requestID(r.Header.Get(requestIDHeader))}
		r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
		rec := &recorder{ResponseWriter: w}
		defer s.note(r, rec, c, began)
		defer s.recovered(rec, r, c)
		setHeaders(w.Header(), c.id, r.TLS != nil)
		if !s.allowed(r.RemoteAddr) {
			s.refuse(rec, r, problem.New(problem.Forbidden, "calls from this address are not taken"))
			return
		}
		if len(r.TransferEncoding) > 0 { // It may have had a length beside: RFC 9112 6.1 closes the connection then, and net/http hides it.
			rec.Header().Set("Connection", "close")
		}
		if !clean(r.URL.EscapedPath()) { // The mux would redirect, and a method other than GET with it.
			s.noPath(rec, r)
			return
		}
		if p := s.foreign(r); p != nil {
			s.refuse(rec, r, p)
			return
		}
		next.ServeHTTP(rec, r)
	})
}

// clean reports whether a path has no empty part and none that is a step.
func clean(escaped string) bool {
	return escaped == "/" || !strings.HasSuffix(escaped, "/") && path.Clean("/"+escaped) == escaped
}

// foreign refuses what a browser sends on behalf of another site. An open server takes no credential that such a page
// lacks, so it is called by a name of this machine alone: a page that has its own name resolved to it is refused.
func (s *Server) foreign(r *http.Request) *problem.DetailsError {
	if err := s.origins.Check(r); err != nil {
		return problem.New(problem.Forbidden, "a page of another site may not call this")
	}
	if s.config.Open && !ownName(r.Host) {
		return problem.New(problem.Forbidden, "a server without credentials is called as localhost, or by a loopback address")
	}
	return nil
}

// ownName reports whether a Host header names this machine.
func ownName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// note writes the line of a call and counts it.
func (s *Server) note(r *http.Request, rec *recorder, c *call, began time.Time) {
	took := time.Since(began)
	pattern := c.pattern
	if pattern == "" {
		pattern = "none"
	}
	s.requests.Note(pattern, rec.status, took)
	s.stats.Note(rec.status, took)
	level, failed := zerolog.InfoLevel, error(nil)
	switch p, ok := errors.AsType[*problem.DetailsError](c.failed); {
	case ok && p.Kind == problem.Busy:
		level = zerolog.WarnLevel
	case rec.status >= http.StatusInternalServerError:
		level, failed = zerolog.ErrorLevel, c.failed
	}
	line := s.config.Logger.WithLevel(level) //nolint:zerologlint // It is sent below.
	if c.who == "" {
		line = s.journal.stranger(level, pattern+" "+strconv.Itoa(rec.status))
	}
	if c.callerID != "" || c.callerAgent != "" {
		line.Str("caller_request_id", c.callerID).Str("caller_agent", c.callerAgent)
	}
	line.AnErr("error", failed).AnErr("credential", clipped(c.reason)).Str("request_id", c.id).Str("method", clip(r.Method, longestMethod)).Str("path", clip(r.URL.EscapedPath(), longestPath)).
		Str("from", r.RemoteAddr).Str("who", c.who).Int("status", rec.status).Dur("took", took).Msg("call")
}

// recovered turns a panic into an answer, if none was begun.
func (s *Server) recovered(rec *recorder, r *http.Request, c *call) {
	cause := recover()
	if cause == nil {
		return
	}
	c.failed = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
	if rec.status == 0 {
		problem.New(problem.Internal, "the server's log has the reason, by the request's id").Write(rec, clip(r.URL.Path, longestPath), c.id)
		return
	}
	rec.status = http.StatusInternalServerError
}

// requestID takes the caller's id if it is one that logs can hold.
func requestID(given string) string {
	if len(given) > 0 && len(given) <= 128 {
		good := true
		for _, c := range []byte(given) {
			good = good && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-')
		}
		if good {
			return given
		}
	}
	return uuid.Must(uuid.NewV7()).String()
}

// setHeaders tells browsers to do nothing with an answer, and caches not to keep it.
func setHeaders(header http.Header, id string, secure bool) {
	header.Set(requestIDHeader, id)
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	if secure {
		header.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

// allowed reports whether a caller may call. What a proxy says of its client is not believed.
func (s *Server) allowed(remote string) bool {
	from, ok := address(remote)
	return len(*s.allow.Load()) == 0 || ok && s.allows(from)
}

// allows reports whether an address may call.
func (s *Server) allows(from netip.Addr) bool {
	allow := *s.allow.Load()
	return len(allow) == 0 || slices.ContainsFunc(allow, func(p netip.Prefix) bool { return p.Contains(from) })
}

// address returns the address of "host:port".
func address(remote string) (netip.Addr, bool) {
	from, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}, false
	}
	return from.Addr().Unmap().WithZone(""), true
}

// refuse answers with a problem.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, p *problem.DetailsError) {
	p.Write(w, clip(r.URL.Path, longestPath), callOf(r.Context()).id)
}

func (s *Server) noPath(w http.ResponseWriter, r *http.Request) {
	s.hold(r.Context(), w, failureScope(r.RemoteAddr))
	s.refuse(w, r, problem.New(problem.NotFound, "GET /api/v1/openapi.json tells which paths there are"))
}

func (s *Server) wrongMethod(allowed string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := problem.New(problem.MethodNotAllowed, "allowed is %s", allowed)
		p.Header = http.Header{"Allow": {allowed}}
		s.hold(r.Context(), w, failureScope(r.RemoteAddr))
		s.refuse(w, r, p)
	})
}
