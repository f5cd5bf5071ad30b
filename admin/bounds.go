package admin

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/api"
	"github.com/headgate/headgate/admin/internal/openapi"
	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
)

// Bounds of bodies, in bytes, beside MaxBody, which is that of a job with its payload.
const (
	maxFields = 64 << 10
	maxResult = maxFields + 88<<10 // A result of 64 KiB in base64.
	maxPolicy = maxFields + api.MaxPolicy
)

// bound makes what bounds the server, of its config.
func (s *Server) bound() {
	c := &s.config
	s.callers = newThrottle(c.AdminLimit)
	s.failures = newThrottle(admission.PerSecond(failureRate).WithBurst(failureBurst))
	s.traffic = newThrottle(c.TenantLimit)
	s.volume = newThrottle(admission.PerSecond(admission.Tokens(c.TenantBytes >> 10)).WithBurst(admission.Tokens(2 * c.MaxBody >> 10)))
	s.readers = newThrottle(admission.PerSecond(readRate).WithBurst(readBurst))
	s.lookers = newThrottle(admission.PerSecond(lookRate).WithBurst(lookBurst))
	s.reading = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))
	s.refusals = newThrottle(admission.PerSecond(holdRate).WithBurst(holdBurst))
	patience := min(maxPatience, c.Timeout/2)
	s.turns, s.kept = newTurns(c.MaxCalls, c.MaxBytes, patience), newTurns(keptCalls, keptCalls*maxFields, min(keptPatience, patience))
}

// newDoor returns the listener that bounds connections. Some descriptors are left for files, and for Redis.
func (s *Server) newDoor(inner net.Listener) *door {
	most := s.config.MaxConnections
	if limit := descriptors(); limit > 0 {
		most = min(most, max(limit/2, limit-spareDescriptors))
	}
	ofNetwork := min(s.config.MaxConnectionsPerAddress, most)
	d := newDoor(inner, most, ofNetwork, max(1, most/tenantConnections))
	d.allowed, d.refused, d.full = s.allows, s.turnedAway, s.config.Guard.Delays.WithDefaults().Connections
	return d
}

// turnedAway counts a connection that was not let in, or was closed for another, and tells of some.
func (s *Server) turnedAway(cause string) {
	s.requests.Refused(cause)
	s.journal.stranger(zerolog.WarnLevel, "connection "+cause).Str("cause", cause).Msg("connection turned away")
}

// bodyBound returns the largest body of an operation.
func (s *Server) bodyBound(kind openapi.BodyKind) int64 {
	switch kind {
	case openapi.Result:
		return maxResult
	case openapi.Payload:
		return s.config.MaxBody
	case openapi.Policy:
		return maxPolicy
	case openapi.Fields:
	}
	return maxFields
}

const (
	// maxPatience is how long a call waits for its turn, if the time-out is not shorter; a kept one waits keptPatience.
	maxPatience  = 5 * time.Second
	keptPatience = time.Second
	// keptCalls are the places of those who look after the server, keptShare those of one of them.
	keptCalls, keptShare = 64, 16
	// What one tenant may have of the calls and of the connections: a sixteenth and a quarter. Credentials of the whole deployment
	// may have three quarters of the calls.
	tenantCalls, tenantConnections = 16, 4
	// spareDescriptors are those that are not for connections of callers: Redis has 64 of them.
	spareDescriptors    = 128
	readRate, readBurst = 2, 20
	lookRate, lookBurst = 50, 100
	// largeBody is from where on a body is read by no more than half of the processors, in bytes: the others answer what is short.
	largeBody = 64 << 10
	// listRows of a list are as much work as a call.
	listRows = 20
	// holdRate and holdBurst are how many refusals a caller hears at once; more of them are held for holdFor, as long as no more
	// than maxHeld are.
	holdRate, holdBurst = 20, 50
	holdFor             = time.Second
	maxHeld             = 1024
)

// budgetOf names what bounds are counted by: a tenant's credentials have them together.
func budgetOf(who access.Principal) string {
	if who.Tenant != "" {
		return "tenant " + who.Tenant
	}
	return who.Name
}

// shareOf is how much of a caller is under way at a time.
func (s *Server) shareOf(who access.Principal) share {
	if who.Tenant != "" {
		return share{max(1, s.config.MaxCalls/tenantCalls), max(s.config.MaxBytes/tenantCalls, s.config.MaxBody)}
	}
	return share{max(1, s.config.MaxCalls*3/4), max(s.config.MaxBytes*3/4, maxPolicy)}
}

// turn waits until a call may be answered, and returns what to call when it is.
func (s *Server) turn(r *http.Request, rt route.Route, operation *openapi.Operation, who access.Principal) (leave func(), err error) {
	bytes := int64(0)
	if operation.TakesBody() {
		if bytes = s.bodyBound(operation.BodyKind); r.ContentLength >= 0 {
			bytes = min(bytes, r.ContentLength)
		}
	}
	switch rt.Load {
	case route.Wait:
		return func() {}, nil
	case route.Kept:
		leave = s.kept.enter(r.Context(), failureScope(r.RemoteAddr), share{keptShare, maxFields}, 0)
	case route.Operating, route.Data:
		leave = s.turns.enter(r.Context(), budgetOf(who), s.shareOf(who), bytes)
	}
	if leave != nil {
		return leave, nil
	}
	s.requests.Refused("calls")
	p := problem.New(problem.Busy, "as many calls are under way as may be; this one was not begun")
	p.RetryAfter = time.Second
	return nil, p
}

// meter charges a call of a tenant for being one, if it is data; the others are an operator's, and charged as such. Its bytes are
// charged once they are known: here it hears of those that it owes.
func (s *Server) meter(rt route.Route, who access.Principal) error {
	data := rt.Load == route.Data || rt.Load == route.Wait
	if !data {
		if wait, ok := s.callers.take(who.Caller(), 1); !ok {
			s.requests.Refused("rate")
			return tooMany("this credential makes more calls than it may", wait)
		}
	}
	if who.Tenant == "" {
		return nil
	}
	if data {
		if wait, ok := s.traffic.take(budgetOf(who), 1); !ok {
			s.requests.Refused("rate")
			return tooMany("this tenant's credentials make more calls than they may", wait)
		}
	}
	if wait, ok := s.volume.take(budgetOf(who), 1); !ok {
		s.requests.Refused("bytes")
		return tooMany("this tenant's credentials send and read more bytes than they may", wait)
	}
	return nil
}

// meterList charges a tenant for a list that may be long, which is as much work as many calls: before it is read, so that not as many
// are read at a time as there are connections.
func (s *Server) meterList(who access.Principal, rt route.Route, limit string) {
	rows, err := strconv.Atoi(limit)
	if err != nil || who.Tenant == "" || rt.Load != route.Operating || rows < listRows {
		return
	}
	s.callers.owe(who.Caller(), admission.Tokens(rows/listRows))
}

// weighAnswer charges a tenant for what was written to it. How large that would be nobody knew, so it is owed.
func (s *Server) weighAnswer(c *call, size int) {
	if c.tenant != "" && size >= 1<<10 {
		s.volume.owe(c.tenant, admission.Tokens(size>>10))
	}
}

// meterParts charges a tenant for a call of data that asks for several things: each costs as much as a call of its own.
func (s *Server) meterParts(who access.Principal, parts int) error {
	if who.Tenant == "" || parts <= 1 {
		return nil
	}
	if wait, ok := s.traffic.take(budgetOf(who), admission.Tokens(parts-1)); !ok {
		s.requests.Refused("rate")
		return tooMany("this tenant's credentials ask for more than they may", wait)
	}
	return nil
}

// meterStranger charges an address for the description, which is large. Health is for everybody and never refused: a proxy would take
// that for an illness. Who asks more often than any proxy does waits for the answer.
func (s *Server) meterStranger(r *http.Request, rt route.Route) error {
	if rt.Path != api.DescriptionPath {
		if _, ok := s.lookers.take(failureScope(r.RemoteAddr), 1); !ok {
			s.wait(r.Context())
		}
		return nil
	}
	if wait, ok := s.readers.take(failureScope(r.RemoteAddr), 1); !ok {
		s.requests.Refused("rate")
		return tooMany("this address reads the description more often than it may", wait)
	}
	return nil
}

// weigh charges a tenant for a body, whatever becomes of it.
func (s *Server) weigh(who access.Principal, size int) error {
	if who.Tenant == "" || size == 0 {
		return nil
	}
	if wait, ok := s.volume.take(budgetOf(who), admission.Tokens(max(size>>10, 1))); !ok {
		s.requests.Refused("bytes")
		return tooMany("this tenant's credentials send more bytes than they may", wait)
	}
	return nil
}

// hold keeps a caller waiting for a refusal who has had many: one that asks again at once, on as many connections as it likes, would
// otherwise cost more than what it was refused. With too many of them waiting it tells them to go.
func (s *Server) hold(ctx context.Context, w http.ResponseWriter, caller string) {
	if _, ok := s.refusals.take(caller, 1); ok {
		return
	}
	if !s.wait(ctx) {
		w.Header().Set("Connection", "close")
	}
}

// wait is about as long as holdFor, so that those who came together do not go on together; false at once if too many wait.
func (s *Server) wait(ctx context.Context) bool {
	defer s.held.Add(-1)
	if s.held.Add(1) > maxHeld {
		return false
	}
	timer := time.NewTimer(holdFor/2 + rand.N(holdFor))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return true
}
