package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// MaxPolicy is the largest text of a policy, in bytes.
const MaxPolicy = policy.MaxBytes

func (a *API) policyRoutes() []route.Route {
	return []route.Route{
		see("/api/v1/policy", a.policy),
		{Method: http.MethodPut, Path: "/api/v1/policy", Role: access.Admin, Reach: route.Deployment, Handle: a.putPolicy},
		operate(http.MethodPost, "/api/v1/policy/dry-run", a.tryPolicy),
		see("/api/v1/policy/versions", a.policyVersions),
		see("/api/v1/policy/versions/{version}", a.policyVersion),
		{Method: http.MethodPost, Path: "/api/v1/policy/rollback", Role: access.Admin, Reach: route.Deployment, Handle: a.rollback},
		see("/api/v1/audit", a.audit),
	}
}

// tag is the entity tag of what a version of the policy says.
func tag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

func tagged(version int64, value any) *route.Answer {
	return &route.Answer{Value: value, Header: http.Header{"Etag": {tag(version)}}}
}

// editOf is an edit by whoever calls, of the version that the call was made from. If-Match has to name that: who does
// not say what they saw would undo what they did not see.
func (a *API) editOf(r *route.Request, reason string) (rollout.Edit, error) {
	given := strings.Join(r.Header.Values("If-Match"), ",")
	if given == "" {
		return rollout.Edit{}, problem.New(problem.PreconditionRequired, "send If-Match with the ETag of what you saw and are changing")
	}
	version, err := a.config.Store.PolicyInForce(r.Context())
	if err != nil {
		return rollout.Edit{}, err
	}
	edit := rollout.Edit{Author: author(r), Reason: reason, Expected: version}
	if tagIn(given, version) {
		return edit, nil
	}
	return edit, lost(version)
}

func clip(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

// lost is told to the loser of two editors.
func lost(inForce int64) *problem.DetailsError {
	p := problem.New(problem.PreconditionFailed, "version %d of the policy is in force: look at what it says, and change that", inForce)
	p.Header = http.Header{"Etag": {tag(inForce)}}
	return p
}

func (a *API) policy(r *route.Request) (*route.Answer, error) {
	current, err := rollout.Current(r.Context(), a.config.Store)
	if err != nil {
		return nil, err
	}
	return tagged(current.Version, current), nil
}

// readPolicy reads a policy that was sent.
func readPolicy(body []byte) (policy.Policy, error) {
	document, err := policy.Unmarshal(body)
	if err != nil {
		return document, badPolicy(err)
	}
	return document, nil
}

// badPolicy tells all that is wrong with a policy, or with a part of one. Fields are named as in the policy's JSON.
func badPolicy(err error) error {
	faults := fieldFaults(err)
	for i := range faults {
		faults[i] = problem.At("", faults[i].Detail)
	}
	if len(faults) == 0 {
		faults = append(faults, problem.At("", err.Error()))
	}
	return problem.Invalid(faults...)
}

type editedView struct {
	From    int64          `json:"from"`
	Version int64          `json:"version"`
	Changes []shown.Change `json:"changes"`
}

func editedViewOf(done rollout.Result) editedView {
	return editedView{done.From, done.To, shown.ChangesOf(done.Changes)}
}

// triedView is what an edit would do, and would have done.
type triedView struct {
	editedView

	Forecast rollout.Forecast `json:"forecast"`
}

func (a *API) putPolicy(r *route.Request) (*route.Answer, error) {
	document, err := readPolicy(r.Body)
	if err != nil {
		return nil, err
	}
	edit, err := a.editOf(r, r.URL.Query().Get("reason"))
	if err != nil {
		return nil, err
	}
	done, err := rollout.Put(r.Context(), a.config.Store, document, edit)
	if err != nil {
		return nil, err
	}
	return tagged(done.To, editedViewOf(done)), nil
}

func (a *API) tryPolicy(r *route.Request) (*route.Answer, error) {
	document, err := readPolicy(r.Body)
	if err != nil {
		return nil, err
	}
	would, err := rollout.DryRun(r.Context(), a.config.Store, document)
	if err != nil {
		return nil, err
	}
	forecast, err := rollout.Foresee(r.Context(), a.config.Store, document)
	if err != nil {
		return nil, err
	}
	return tagged(would.From, triedView{editedViewOf(would), forecast}), nil
}

type rollbackBody struct {
	Version int64  `json:"version"`
	Reason  string `json:"reason"`
}

func (a *API) rollback(r *route.Request) (*route.Answer, error) {
	var ask rollbackBody
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	edit, err := a.editOf(r, ask.Reason)
	if err != nil {
		return nil, err
	}
	done, err := rollout.Rollback(r.Context(), a.config.Store, ask.Version, edit)
	if err != nil {
		return nil, err
	}
	return tagged(done.To, editedViewOf(done)), nil
}

type versionsView struct {
	Versions []shown.AuditEntry `json:"versions"`
}

func (a *API) policyVersions(r *route.Request) (*route.Answer, error) {
	versions, err := a.config.Store.PolicyVersions(r.Context())
	if err != nil {
		return nil, err
	}
	all := versionsView{Versions: []shown.AuditEntry{}}
	for _, v := range versions {
		all.Versions = append(all.Versions, shown.AuditEntryOf(v))
	}
	return route.OK(all), nil
}

func (a *API) policyVersion(r *route.Request) (*route.Answer, error) {
	version, err := strconv.ParseInt(r.PathValue("version"), 10, 64)
	if err != nil {
		return nil, problem.Invalid(problem.Fault{Parameter: "version", Detail: "is no version"})
	}
	text, err := a.config.Store.PolicyVersion(r.Context(), version)
	if err != nil {
		return nil, err
	}
	return route.OK(json.RawMessage(text)), nil
}

func (a *API) audit(r *route.Request) (*route.Answer, error) {
	query := r.URL.Query()
	limit, _ := strconv.Atoi(query.Get("limit")) // The schema has seen to it.
	page, err := a.config.Store.Audit(r.Context(), store.AuditQuery{
		Limit: limit, Cursor: query.Get("cursor"), Action: query.Get("action"), Author: query.Get("author"), Name: query.Get("name"),
	})
	if err != nil {
		return nil, err
	}
	return route.OK(shown.AuditPageOf(page)), nil
}

// document is the policy in force as it was read, and what answers by it. Nobody changes it.
type document struct {
	policy   policy.Policy
	compiled *policy.Compiled
}

// documents keeps the document that was read last: a call that shows a part of it reads no more than the version in force, where
// decoding all of 10,000 tenants takes a fifth of a second.
type documents struct {
	store   store.Deployment
	last    atomic.Pointer[document]
	reading singleflight.Group
}

// current returns the policy in force.
func (d *documents) current(ctx context.Context) (*document, error) {
	version, err := d.store.PolicyInForce(ctx)
	if err != nil {
		return nil, err
	}
	if last := d.last.Load(); last != nil && last.policy.Version == version {
		return last, nil
	}
	read := d.reading.DoChan(strconv.FormatInt(version, 10), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout) // Whoever asked first may go away.
		defer cancel()
		current, err := rollout.Current(ctx, d.store)
		if err != nil {
			return nil, err
		}
		compiled, err := current.Prepare()
		if err != nil {
			return nil, err
		}
		fresh := &document{current, compiled}
		d.last.Store(fresh)
		return fresh, nil
	})
	select {
	case done := <-read:
		fresh, _ := done.Val.(*document)
		return fresh, done.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// candidateRoutes are those of the roll-out of other rules to a part of the tenants.
func (a *API) candidateRoutes() []route.Route {
	const path = "/api/v1/policy/rollout"
	admin := func(method, path string, handle func(*route.Request) (*route.Answer, error)) route.Route {
		return route.Route{Method: method, Path: path, Role: access.Admin, Reach: route.Deployment, Handle: handle}
	}
	return []route.Route{
		see(path, a.candidate),
		admin(http.MethodPut, path, a.putCandidate),
		admin(http.MethodDelete, path, a.endCandidate(rollout.Abandon)),
		see(path+"/shadow", a.shadow),
		admin(http.MethodPost, path+"/share", a.shareCandidate),
		admin(http.MethodPost, path+"/promote", a.endCandidate(rollout.Promote)),
	}
}

func (a *API) candidate(r *route.Request) (*route.Answer, error) {
	current, err := rollout.Current(r.Context(), a.config.Store)
	if err != nil {
		return nil, err
	}
	text, err := current.At("rollout")
	if err != nil {
		return nil, err
	}
	if text == nil {
		return nil, rollout.ErrNoCandidate
	}
	return tagged(current.Version, text), nil
}

// shadowView is what a candidate in shadow would have answered, and by which levels it would have refused.
type shadowView struct {
	ID      string           `json:"id"`
	Since   *time.Time       `json:"since"`
	Allowed int64            `json:"allowed"`
	Refused map[string]int64 `json:"refused"`
}

func (a *API) shadow(r *route.Request) (*route.Answer, error) {
	counts, err := a.config.Store.ShadowCounts(r.Context())
	if err != nil {
		return nil, err
	}
	if counts.ID == "" {
		return nil, problem.New(problem.NotFound, "nothing was counted for a candidate in shadow yet")
	}
	view := shadowView{counts.ID, shown.Stamp(counts.Since), counts.Allowed, map[string]int64{}}
	for level, refused := range counts.Refused {
		view.Refused[admission.Level(level).String()] = refused
	}
	return route.OK(view), nil
}

func (a *API) putCandidate(r *route.Request) (*route.Answer, error) {
	return a.editCandidate(r, func(ctx context.Context, edit rollout.Edit) (rollout.Result, error) {
		return rollout.StartCandidate(ctx, a.config.Store, json.RawMessage(r.Body), edit)
	})
}

type shareBody struct {
	Percent int `json:"percent"`
}

func (a *API) shareCandidate(r *route.Request) (*route.Answer, error) {
	var ask shareBody
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	return a.editCandidate(r, func(ctx context.Context, edit rollout.Edit) (rollout.Result, error) {
		return rollout.SetShare(ctx, a.config.Store, ask.Percent, edit)
	})
}

func (a *API) endCandidate(end func(context.Context, store.Deployment, rollout.Edit) (rollout.Result, error)) func(*route.Request) (*route.Answer, error) {
	return func(r *route.Request) (*route.Answer, error) {
		return a.editCandidate(r, func(ctx context.Context, edit rollout.Edit) (rollout.Result, error) {
			return end(ctx, a.config.Store, edit)
		})
	}
}

func (a *API) editCandidate(r *route.Request, change func(context.Context, rollout.Edit) (rollout.Result, error)) (*route.Answer, error) {
	edit, err := a.editOf(r, r.URL.Query().Get("reason"))
	if err != nil {
		return nil, err
	}
	done, err := change(r.Context(), edit)
	if err != nil {
		return nil, err
	}
	return tagged(done.To, editedViewOf(done)), nil
}
