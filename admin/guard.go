package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/api"
	"github.com/headgate/headgate/admin/internal/openapi"
	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
)

// errUnbound is a handler that forgot whose things it shows.
var errUnbound = errors.New("the handler did not ask which tenant the principal is bound to")

// guard lets a call through to its handler when its sender may make it and its parts are valid.
func (s *Server) guard(rt route.Route, operation *openapi.Operation) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf(r.Context())
		c.pattern = rt.Pattern()
		ctx, cancel := context.WithTimeout(r.Context(), s.config.Timeout)
		defer cancel()
		answer, err := s.answer(w, r.WithContext(ctx), rt, operation)
		if c.crowded {
			w.Header().Set("Connection", "close")
		}
		if err != nil {
			c.failed = err
			p := api.ProblemOf(err)
			if p.Kind == problem.TooManyRequests || p.Kind == problem.Unauthenticated {
				s.hold(r.Context(), w, cmp.Or(c.who, failureScope(r.RemoteAddr)))
			}
			s.refuse(w, r, p)
			return
		}
		if answer.Raw != nil {
			answer.Raw.ServeHTTP(w, r)
			return
		}
		s.send(w, c, answer)
	})
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, rt route.Route, operation *openapi.Operation) (*route.Answer, error) {
	who, err := s.admit(r, rt)
	if err != nil {
		return nil, err
	}
	if err = s.elsewhere(rt); err != nil {
		return nil, err
	}
	if err = s.begin(w, r, rt); err != nil {
		return nil, err
	}
	leave, err := s.turn(r, rt, operation, who)
	if err != nil {
		return nil, err
	}
	defer leave()
	if faults := operation.CheckPath(r.PathValue); len(faults) > 0 {
		return nil, problem.Invalid(faults...)
	}
	query, err := url.ParseQuery(r.URL.RawQuery) // URL.Query would leave out what it cannot read.
	if err != nil {
		return nil, problem.New(problem.InvalidRequest, "the query cannot be read: escape what is no letter and no digit")
	}
	if faults := operation.CheckQuery(query); len(faults) > 0 {
		return nil, problem.Invalid(faults...)
	}
	s.meterList(who, rt, query.Get("limit"))
	body, err := s.body(w, r, operation, who)
	if err != nil {
		return nil, err
	}
	request := &route.Request{Request: r, Who: who, Body: body}
	if rt.Parts != nil {
		if err := s.meterParts(who, rt.Parts(body)); err != nil {
			return nil, err
		}
	}
	answer, err := rt.Handle(request)
	if err != nil && api.ProblemOf(err).Kind == problem.NotFound {
		s.scans.note(who.String(), r.URL.RequestURI(), body, s.api.MaxUnknown(), time.Now())
	}
	c := callOf(r.Context())
	c.callerID, c.callerAgent = request.Noted()
	if err == nil && rt.Reach == route.Tenant && !request.Bound() {
		err = errUnbound
	}
	return answer, err
}

// admit returns who calls, if the route is for them.
func (s *Server) admit(r *http.Request, rt route.Route) (access.Principal, error) {
	if rt.Role == access.Anyone {
		return access.Principal{}, s.meterStranger(r, rt)
	}
	c := callOf(r.Context())
	who, err := s.authenticate(r)
	if err != nil {
		return who, err
	}
	c.who = who.String()
	if who.Tenant != "" {
		c.tenant = budgetOf(who)
	}
	if g := guestIn(r.Context()); g != nil && !g.knows(who.Tenant) {
		c.crowded = true
	}
	if err := s.meter(rt, who); err != nil {
		return who, err
	}
	if !who.May(rt.Role) {
		return who, problem.New(problem.Forbidden, "this needs the role %s, and the credential has %s", rt.Role, who.Role)
	}
	if rt.Reach == route.Deployment && who.Tenant != "" {
		return who, problem.New(problem.Forbidden, "this is the deployment's, and the credential is bound to a tenant")
	}
	return who, nil
}

// authenticate tells addresses that send many credentials which are not valid to wait. One that is valid passes all the
// same: behind a proxy the callers of a deployment have one address.
func (s *Server) authenticate(r *http.Request) (access.Principal, error) {
	if s.config.Open {
		return access.Principal{Name: "anyone", Role: access.Admin}, nil
	}
	who, err := s.credentials.Load().Authenticate(r.Header)
	if err == nil {
		return who, nil
	}
	if refused, ok := errors.AsType[*access.CredentialError](err); ok {
		callOf(r.Context()).reason = refused.Reason
	}
	if wait, ok := s.failures.take(failureScope(r.RemoteAddr), 1); !ok {
		return who, tooMany("too many credentials of this address were not valid", wait)
	}
	p := problem.New(problem.Unauthenticated, "send a key or a token as Authorization: Bearer ...")
	p.Header = http.Header{"Www-Authenticate": {`Bearer realm="headgate"`}}
	return who, p
}

// failureScope is the network that failures are counted for: an IPv6 host has a whole /64.
func failureScope(remote string) string {
	from, ok := address(remote)
	if !ok {
		return "unknown"
	}
	return networkOf(from)
}

// networkOf names the network that an address is counted with.
func networkOf(from netip.Addr) string {
	if from.Is4() {
		return from.String()
	}
	network, err := from.Prefix(64)
	if err != nil {
		return "unknown"
	}
	return network.String()
}

// body reads the body and checks it against the description.
func (s *Server) body(w http.ResponseWriter, r *http.Request, operation *openapi.Operation, who access.Principal) ([]byte, error) {
	most := s.bodyBound(operation.BodyKind)
	if r.ContentLength > most {
		return nil, tooLarge(most)
	}
	if r.ContentLength > 0 { // Before it is read: what is refused costs nothing then.
		if err := s.weigh(who, int(r.ContentLength)); err != nil {
			return nil, err
		}
	}
	body, err := readAll(http.MaxBytesReader(w, r.Body, most), r.ContentLength)
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge(large.Limit)
	}
	if err != nil {
		return nil, problem.New(problem.InvalidRequest, "the body did not come as a whole")
	}
	if r.ContentLength < 0 {
		if err := s.weigh(who, len(body)); err != nil {
			return nil, err
		}
	}
	if !operation.TakesBody() {
		if len(body) > 0 {
			return nil, problem.Invalid(problem.At("", "there is a body; allowed is none"))
		}
		return nil, nil
	}
	if len(body) > 0 {
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			return nil, problem.New(problem.UnsupportedMedia, "send it with Content-Type: application/json")
		}
	}
	if len(body) > largeBody {
		select {
		case s.reading <- struct{}{}:
			defer func() { <-s.reading }()
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		}
	}
	if faults := operation.CheckBody(body); len(faults) > 0 {
		return nil, problem.Invalid(faults...)
	}
	return body, nil
}

// readAll is io.ReadAll with room for what is announced: growing to a megabyte would copy five.
func readAll(from io.Reader, announced int64) ([]byte, error) {
	text := bytes.NewBuffer(make([]byte, 0, max(announced, 0)+bytes.MinRead))
	_, err := text.ReadFrom(from)
	return text.Bytes(), err
}

func tooLarge(most int64) error {
	return problem.New(problem.TooLarge, "allowed are %d bytes", most)
}

// send writes an answer, and charges for it first: the caller's next call is not to be quicker. It is written as a whole, so that
// what has no text is an error, not half an answer.
func (s *Server) send(w http.ResponseWriter, c *call, answer *route.Answer) {
	var text []byte
	if answer.Value != nil {
		var err error
		if text, err = json.Marshal(answer.Value); err != nil {
			panic(fmt.Errorf("write answer: %w", err))
		}
		w.Header().Set("Content-Type", "application/json")
	}
	s.weighAnswer(c, len(text))
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(max(answer.Status, http.StatusOK))
	_, _ = w.Write(text) // Whoever went away hears nothing.
}
