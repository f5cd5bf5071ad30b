package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// partRoutes are those of parts of the policy. Each edit of one stores the whole policy as its next version.
func (a *API) partRoutes() []route.Route {
	const config, tenant, tier = "/api/v1/rate-limit/config/{scope}", "/api/v1/tenants/{tenant}", "/api/v1/tiers/{tier}"
	const settings, downstream = "/api/v1/queues/{queue}/settings", "/api/v1/downstreams/{downstream}"
	const trigger = "/api/v1/triggers/{trigger}"
	return []route.Route{
		ofTenant(http.MethodGet, config, access.Viewer, a.limitConfig),
		operate(http.MethodPut, config, a.putPart(scopePart)),
		operate(http.MethodDelete, config, a.deletePart(scopePart)),
		operate(http.MethodPut, tenant, a.putPart(tenantPart)),
		operate(http.MethodDelete, tenant, a.deletePart(tenantPart)),
		see(tier, a.part(tierPart)),
		{Method: http.MethodPut, Path: tier, Role: access.Admin, Reach: route.Deployment, Handle: a.putPart(tierPart)},
		{Method: http.MethodDelete, Path: tier, Role: access.Admin, Reach: route.Deployment, Handle: a.deletePart(tierPart)},
		see("/api/v1/tiers", a.names(shown.Tiers)),
		see("/api/v1/tenants", a.tenants),
		see("/api/v1/queue-settings", a.names(shown.QueuesOwn)),
		see(settings, a.part(queuePart)),
		operate(http.MethodPut, settings, a.putPart(queuePart)),
		operate(http.MethodDelete, settings, a.deletePart(queuePart)),
		see("/api/v1/downstreams", a.names(shown.Downstreams)),
		see(downstream, a.part(downstreamPart)),
		operate(http.MethodPut, downstream, a.putPart(downstreamPart)),
		operate(http.MethodDelete, downstream, a.deletePart(downstreamPart)),
		see("/api/v1/triggers", a.triggers),
		see(trigger, a.part(triggerPart)),
		operate(http.MethodPut, trigger, a.putPart(triggerPart)),
		operate(http.MethodDelete, trigger, a.deletePart(triggerPart)),
		operate(http.MethodPost, trigger+"/dry-run", a.tryTrigger),
	}
}

// parter returns the path into the policy of the part that a call is about.
type parter func(*route.Request) ([]string, error)

func tenantPart(r *route.Request) ([]string, error) {
	return shown.TenantPath(r.PathValue("tenant")), nil
}

func tierPart(r *route.Request) ([]string, error) { return shown.Tiers.Path(r.PathValue("tier")), nil }

func queuePart(r *route.Request) ([]string, error) {
	return shown.QueuesOwn.Path(r.PathValue("queue")), nil
}

func downstreamPart(r *route.Request) ([]string, error) {
	return shown.Downstreams.Path(r.PathValue("downstream")), nil
}

func triggerPart(r *route.Request) ([]string, error) {
	return shown.TriggersOwn.Path(r.PathValue("trigger")), nil
}

// triggers shows all triggers, and which of them act.
func (a *API) triggers(r *route.Request) (*route.Answer, error) {
	current, err := rollout.Current(r.Context(), a.config.Store)
	if err != nil {
		return nil, err
	}
	view, err := shown.TriggersOf(r.Context(), a.config.Store, current)
	return tagged(current.Version, view), err
}

// tryTrigger tells what a trigger that is sent would have done in the last hour.
func (a *API) tryTrigger(r *route.Request) (*route.Answer, error) {
	current, err := rollout.Current(r.Context(), a.config.Store)
	if err != nil {
		return nil, err
	}
	name := r.PathValue("trigger")
	next, err := current.With(json.RawMessage(r.Body), shown.TriggersOwn.Path(name)...)
	if err != nil {
		return nil, badPolicy(err)
	}
	trial, err := shown.TryTrigger(r.Context(), a.config.Store, next.Trigger(name))
	if err != nil {
		return nil, err
	}
	return tagged(current.Version, trial), nil
}

// scopePart is the limit of a scope. That of all is for admins.
func scopePart(r *route.Request) ([]string, error) {
	scope := admission.Scope(r.PathValue("scope"))
	if scope == admission.Global && !r.Who.May(access.Admin) {
		return nil, problem.New(problem.Forbidden, "the limit of all needs the role %s, and the credential has %s", access.Admin, r.Who.Role)
	}
	return policy.LimitPath(scope)
}

func (a *API) putPart(part parter) func(*route.Request) (*route.Answer, error) {
	return func(r *route.Request) (*route.Answer, error) {
		return a.editPart(r, part, func(current policy.Policy, path []string) (policy.Policy, error) {
			next, err := current.With(json.RawMessage(r.Body), path...)
			if err != nil {
				return next, badPolicy(err)
			}
			return next, nil
		})
	}
}

func (a *API) deletePart(part parter) func(*route.Request) (*route.Answer, error) {
	return func(r *route.Request) (*route.Answer, error) {
		return a.editPart(r, part, func(current policy.Policy, path []string) (policy.Policy, error) {
			own, err := current.At(path...)
			if err != nil {
				return current, err
			}
			if own == nil {
				return current, problem.New(problem.NotFound, "the policy has nothing of its own there: what applies is that of the level above, or of the tier")
			}
			return current.With(nil, path...)
		})
	}
}

func (a *API) editPart(r *route.Request, part parter, change func(policy.Policy, []string) (policy.Policy, error)) (*route.Answer, error) {
	path, err := part(r)
	if err != nil {
		return nil, err
	}
	edit, err := a.editOf(r, r.URL.Query().Get("reason"))
	if err != nil {
		return nil, err
	}
	done, err := rollout.Change(r.Context(), a.config.Store, edit, func(current policy.Policy) (policy.Policy, error) {
		return change(current, path)
	})
	if err != nil {
		return nil, err
	}
	return tagged(done.To, editedViewOf(done)), nil
}

func (a *API) limitConfig(r *route.Request) (*route.Answer, error) {
	scope := admission.Scope(r.PathValue("scope"))
	if err := bindScope(r, scope); err != nil {
		return nil, err
	}
	current, err := a.documents.current(r.Context())
	if err != nil {
		return nil, err
	}
	config, err := shown.ReadLimitConfig(r.Context(), a.config.Store, current.policy, current.compiled, scope)
	return tagged(current.policy.Version, config), err
}

// part shows what a part of the policy has of its own.
func (a *API) part(part parter) func(*route.Request) (*route.Answer, error) {
	return func(r *route.Request) (*route.Answer, error) {
		current, err := rollout.Current(r.Context(), a.config.Store)
		if err != nil {
			return nil, err
		}
		path, err := part(r)
		if err != nil {
			return nil, err
		}
		own, err := current.At(path...)
		if err != nil {
			return nil, err
		}
		if own == nil {
			return nil, problem.New(problem.NotFound, "the policy has nothing of its own there: GET /api/v1/policy shows all")
		}
		return tagged(current.Version, own), nil
	}
}

// names shows a page of the names of a section of the policy, with what each has of its own.
func (a *API) names(section shown.Section) func(*route.Request) (*route.Answer, error) {
	return func(r *route.Request) (*route.Answer, error) {
		current, err := rollout.Current(r.Context(), a.config.Store)
		if err != nil {
			return nil, err
		}
		parts, err := shown.PartsOf(current, section, r.URL.Query().Get("cursor"), pageOf(r))
		return tagged(current.Version, parts), err
	}
}

// tenants shows a page of the tenants that the policy names, and of a tier those whose records name it, too.
func (a *API) tenants(r *route.Request) (*route.Answer, error) {
	current, err := rollout.Current(r.Context(), a.config.Store)
	if err != nil {
		return nil, err
	}
	query := r.URL.Query()
	view, err := shown.ReadTenants(r.Context(), a.config.Store, current, shown.TenantsQuery{Tier: query.Get("tier"), Cursor: query.Get("cursor"), Most: pageOf(r)})
	return tagged(current.Version, view), err
}

// recordRoutes are those of what single tenants have beside the policy.
func (a *API) recordRoutes() []route.Route {
	const one = "/api/v1/records/{tenant}"
	return []route.Route{
		see("/api/v1/records", a.records),
		see(one, a.record),
		operate(http.MethodPut, one, a.putRecord),
		operate(http.MethodDelete, one, a.deleteRecord),
		operate(http.MethodPost, one+"/dry-run", a.tryRecord),
	}
}

func (a *API) records(r *route.Request) (*route.Answer, error) {
	query := r.URL.Query()
	page, err := shown.ReadRecords(r.Context(), a.config.Store, store.RecordsQuery{Prefix: query.Get("prefix"), Cursor: query.Get("cursor"), Limit: pageOf(r)})
	return route.OK(page), err
}

func (a *API) record(r *route.Request) (*route.Answer, error) {
	tenant := r.PathValue("tenant")
	if err := admission.ValidateTenant(tenant); err != nil {
		return nil, err
	}
	stored, _, err := rollout.ReadRecord(r.Context(), a.config.Store, tenant)
	if err != nil {
		return nil, err
	}
	view, ok := shown.RecordOf(stored)
	if !ok {
		return nil, noRecord(tenant)
	}
	return tagged(view.Version, view), nil
}

func noRecord(tenant string) error {
	return problem.New(problem.NotFound, "tenant %s has no record: what the policy says applies", tenant)
}

func (a *API) putRecord(r *route.Request) (*route.Answer, error) {
	next, err := policy.UnmarshalRecord(r.Body)
	if err != nil {
		return nil, badPolicy(err)
	}
	done, err := a.editRecord(r, next)
	if err != nil {
		return nil, err
	}
	text, err := policy.MarshalRecord(done.Record)
	if err != nil {
		return nil, err
	}
	view, _ := shown.RecordOf(store.TenantRecord{Tenant: r.PathValue("tenant"), Version: done.Version, Text: text})
	if len(text) == 0 {
		return route.Done(), nil
	}
	return tagged(done.Version, view), nil
}

func (a *API) deleteRecord(r *route.Request) (*route.Answer, error) {
	done, err := a.editRecord(r, policy.OwnLimits{})
	if err == nil && len(done.Changes) == 0 {
		err = noRecord(r.PathValue("tenant"))
	}
	return route.Done(), err
}

// editRecord puts a record in the place of the one that the call was made from, which If-Match names: its ETag, "*" for any, or none where
// If-None-Match says that there was none.
func (a *API) editRecord(r *route.Request, next policy.OwnLimits) (rollout.RecordResult, error) {
	tenant, edit := r.PathValue("tenant"), rollout.Edit{Author: author(r), Reason: r.URL.Query().Get("reason"), Expected: rollout.AnyVersion}
	if err := admission.ValidateTenant(tenant); err != nil {
		return rollout.RecordResult{}, err
	}
	match, absent := strings.Join(r.Header.Values("If-Match"), ","), r.Header.Get("If-None-Match")
	switch {
	case match == "" && absent == "*":
		edit.Expected = policy.NoRecord
	case match == "":
		return rollout.RecordResult{}, problem.New(problem.PreconditionRequired, `send If-Match with the ETag of what you saw and are changing, or "*" for whatever there is; If-None-Match: * where there was none`)
	case strings.TrimSpace(match) != "*":
		was, _, err := rollout.ReadRecord(r.Context(), a.config.Store, tenant)
		if err != nil {
			return rollout.RecordResult{}, err
		}
		if edit.Expected = was.Version; !tagIn(match, was.Version) {
			return rollout.RecordResult{}, otherRecord(&store.RecordConflictError{Tenant: tenant, InForce: was.Version})
		}
	}
	read := func(ctx context.Context) (rollout.Rules, error) {
		current, err := a.documents.current(ctx)
		if err != nil {
			return rollout.Rules{}, err
		}
		return rollout.Rules{Document: current.policy, Compiled: current.compiled}, nil
	}
	done, err := rollout.EditRecord(r.Context(), a.config.Store, read, tenant, edit, func(policy.OwnLimits) (policy.OwnLimits, error) { return next, nil })
	return done, badRecord(err)
}

// badRecord is what an edit of a record that fails is answered with.
func badRecord(err error) error {
	if conflict, ok := errors.AsType[*store.RecordConflictError](err); ok {
		return otherRecord(conflict)
	}
	if errors.Is(err, policy.ErrNoRecords) {
		return problem.New(problem.Conflict, "%s", policy.ErrNoRecords)
	}
	if errors.Is(err, admission.ErrInvalid) {
		return badPolicy(err)
	}
	return err
}

// triedRecord is what an edit of a record would do, and would have done.
type triedRecord struct {
	Tenant   string           `json:"tenant"`
	From     int64            `json:"from"`
	Changes  []shown.Change   `json:"changes"`
	Forecast rollout.Forecast `json:"forecast"`
}

func (a *API) tryRecord(r *route.Request) (*route.Answer, error) {
	tenant := r.PathValue("tenant")
	if err := admission.ValidateTenant(tenant); err != nil {
		return nil, err
	}
	next, err := policy.UnmarshalRecord(r.Body)
	if err != nil {
		return nil, badPolicy(err)
	}
	would, forecast, err := rollout.TryRecord(r.Context(), a.config.Store, tenant, rollout.Edit{Expected: rollout.AnyVersion}, func(policy.OwnLimits) (policy.OwnLimits, error) { return next, nil })
	if err != nil {
		return nil, badRecord(err)
	}
	return tagged(would.Version, triedRecord{tenant, would.Version, shown.ChangesOf(would.Changes), forecast}), nil
}

// tagIn reports whether a list of entity tags has that of a version.
func tagIn(list string, version int64) bool {
	for text := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(text) == tag(version) {
			return true
		}
	}
	return false
}

// otherRecord is told to the loser of two editors of a record.
func otherRecord(conflict *store.RecordConflictError) *problem.DetailsError {
	if conflict.InForce == policy.NoRecord {
		return problem.New(problem.PreconditionFailed, "tenant %s has no record: send If-None-Match: * to store one", conflict.Tenant)
	}
	p := problem.New(problem.PreconditionFailed, "version %d of the record of tenant %s is in force: look at what it says, and change that", conflict.InForce, conflict.Tenant)
	p.Header = http.Header{"Etag": {tag(conflict.InForce)}}
	return p
}
