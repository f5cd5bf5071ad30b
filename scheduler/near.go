package scheduler

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

const (
	// nearGone is below which part of policy.AnomalyRules.WarnAt a limit is no longer nearly used: one that goes to and fro around it is told once.
	nearGone = 0.9
	// nearValues is of how many values of dimensions it is told that their limits are nearly used, of all together: their names are callers' words.
	nearValues = 64
	// fastFill is in how many seconds a bucket fills that is judged by what passed in a minute: when it is looked at it may be full again.
	fastFill = 60
)

// use is what was used of a limit: Tokens of Most, by what passed in a minute and what comes in one, or by what is in the bucket and its burst.
type use struct{ tokens, most float64 }

// part is how much of the limit that is, 1 for all of it.
func (u use) part() float64 { return u.tokens / u.most }

// near are the scopes of which a policy's limits are nearly used. The zero near has none.
type near struct {
	policy *policy.Compiled
	on     map[admission.Scope]bool
}

// look returns the limits that are nearly used, by what was counted in a minute, each of the scopes counted or known to be near. After an error
// nothing has changed.
func (n *near) look(ctx context.Context, s store.Deployment, counted map[admission.Scope]store.Minute) (map[admission.Scope]use, error) {
	warn := n.policy.WarnAt()
	if warn == 0 {
		return nil, nil
	}
	scales, err := s.Scales(ctx)
	if err != nil {
		return nil, err
	}
	all, found := map[admission.Scope]store.Minute{}, map[admission.Scope]use{}
	maps.Copy(all, counted)
	for scope := range n.on {
		if _, known := all[scope]; !known {
			all[scope] = store.Minute{}
		}
	}
	by, err := n.ways(ctx, s, slices.Sorted(maps.Keys(all)))
	if err != nil {
		return nil, err
	}
	for owner, questions := range by {
		var slow []store.Question
		for i := range questions {
			q := &questions[i]
			limit := limitOn(q, scales)
			if float64(limit.Burst)/float64(buckets.MicroPerToken)/float64(limit.Rate) > fastFill {
				slow = append(slow, *q)
				continue
			}
			found[q.Scope()] = use{passed(all[q.Scope()]), float64(limit.Rate) * 60 * times(s, owner)}
		}
		if err := n.peek(ctx, s, owner, slow, scales, found); err != nil {
			return nil, err
		}
	}
	maps.DeleteFunc(found, func(scope admission.Scope, u use) bool {
		least := warn
		if n.on[scope] {
			least *= nearGone
		}
		return u.part() < least
	})
	leaveOut(found)
	n.on = make(map[admission.Scope]bool, len(found))
	for scope := range found {
		n.on[scope] = true
	}
	return found, nil
}

// leaveOut takes out values of dimensions that are too many: those that used least of their limits.
func leaveOut(found map[admission.Scope]use) {
	var values []admission.Scope
	for scope := range found {
		if scope.OfDimension() {
			values = append(values, scope)
		}
	}
	if len(values) <= nearValues {
		return
	}
	slices.SortFunc(values, func(a, b admission.Scope) int { return most(found, a, b) })
	for _, scope := range values[nearValues:] {
		delete(found, scope)
	}
}

// most orders scopes by how much of their limits was used, the most first.
func most(found map[admission.Scope]use, a, b admission.Scope) int {
	return cmp.Or(cmp.Compare(found[b].part(), found[a].part()), cmp.Compare(a, b))
}

// shares is who asks for the buckets that values of dimensions share, of which each partition has one.
const shares = admission.DimensionMark

// times is how many buckets there are of each of an owner's limits that are looked at together.
func times(s store.Deployment, owner string) float64 {
	if owner == shares {
		return float64(len(s.Partitions()))
	}
	return 1
}

// valueWay returns a scope of a dimension as a question, and who is to ask for it: its partition. false where the policy has no limit there.
func (n *near) valueWay(s store.Deployment, scope admission.Scope) (q store.Question, owner string, limited bool) {
	q.Cost = 1
	q.Tenant, q.Queue, _ = strings.Cut(string(scope), ":")
	q.Record = n.policy.RecordVersion(q.Tenant)
	q.Limits, q.MaxKeys, limited = n.policy.DimensionLimits(q.Tenant, q.Queue)
	if owner = shares; q.Queue == "" {
		q.MaxKeys = 0 // It has its bucket.
	} else {
		owner += strconv.Itoa(s.PartitionOf(q.Home()))
	}
	return q, owner, limited && !q.Limits[admission.LevelQueue].Disabled
}

// ways returns the scopes that have a limit, as questions of theirs, by tenant, and those of dimensions by partition.
func (n *near) ways(ctx context.Context, s store.Deployment, scopes []admission.Scope) (map[string][]store.Question, error) {
	by, last := map[string][]store.Question{}, ""
	for _, scope := range scopes {
		if scope.OfDimension() {
			if q, owner, limited := n.valueWay(s, scope); limited {
				by[owner] = append(by[owner], q)
			}
			continue
		}
		tenant, queue, class, err := scope.Parts()
		if err != nil {
			continue
		}
		if tenant != last {
			if err := store.LearnRecord(ctx, s, n.policy, tenant); err != nil {
				return nil, err
			}
			last = tenant
		}
		q := store.Question{Tenant: tenant, Queue: queue, Class: class, Cost: 1}
		if q.Limits, q.Record = n.policy.WayFor(tenant, queue, class); !q.Limits[scope.Level()].Disabled {
			by[tenant] = append(by[tenant], q)
		}
	}
	return by, nil
}

// peek looks into the buckets of one tenant, or of the deployment, of which each partition has a part.
func (n *near) peek(ctx context.Context, s store.Deployment, owner string, slow []store.Question, scales []store.Scale, found map[admission.Scope]use) error {
	ask := []func(context.Context, int64, bool, []store.Question) (bool, []store.Answer, error){s.Check}
	if part, err := strconv.Atoi(strings.TrimPrefix(owner, shares)); err == nil && strings.HasPrefix(owner, shares) {
		ask[0] = s.Partitions()[part].Check
	} else if owner == "" || owner == shares {
		ask = nil
		for _, part := range s.Partitions() {
			ask = append(ask, part.Check)
		}
	}
	for some := range slices.Chunk(slow, store.MaxBatchJobs) {
		left := make([]buckets.Micro, len(some))
		for _, check := range ask {
			_, answers, err := check(ctx, n.policy.Version(), true, some)
			if err != nil {
				return err
			}
			for i := range answers {
				left[i] += leftOf(&some[i], &answers[i])
			}
		}
		for i := range some {
			burst := limitOn(&some[i], scales).Burst * buckets.Micro(times(s, owner))
			found[some[i].Scope()] = use{float64(burst-left[i]) / float64(buckets.MicroPerToken), float64(burst) / float64(buckets.MicroPerToken)}
		}
	}
	return nil
}

// leftOf is what the bucket of a question's scope holds. The value of a dimension without room for its own has none that lacks anything.
func leftOf(q *store.Question, a *store.Answer) buckets.Micro {
	switch {
	case q.OfDimension() && q.Queue == "":
		return a.Left[admission.LevelTenant] + a.Left[admission.LevelQueue] // One of them is no bucket's.
	case q.OfDimension() && a.Shared:
		return buckets.LimitOf(q.Limits[admission.LevelQueue]).Burst
	}
	return a.Left[q.Scope().Level()]
}

// limitOn is the limit that holds of a question's scope.
func limitOn(q *store.Question, scales []store.Scale) buckets.Limit {
	limit := buckets.LimitOf(q.Limits[q.Scope().Level()])
	if part := store.PartOf(scales, q.Scope()); part < 1 {
		return limit.Scaled(&buckets.Scaling{Part: part})
	}
	return limit
}

// passed is how many of the tokens that were asked for in a minute were admitted, where all who asked cost the same.
func passed(m store.Minute) float64 {
	if m.Allowed == 0 {
		return 0
	}
	return float64(m.Tokens) * float64(m.Allowed) / float64(m.Allowed+m.Refused)
}

// watchLimits looks at the limits after a minute, logs those that begin to be nearly used, and has all of them told.
func (s *Scheduler) watchLimits(ctx context.Context, d *sentry, minute int64, counted map[admission.Scope]store.Minute) error {
	was := d.near.on
	counted, err := s.withValues(ctx, d.near.policy, minute, counted)
	if err != nil {
		return err
	}
	found, err := d.near.look(ctx, s.store, counted)
	if errors.Is(err, store.ErrStale) {
		return nil // Another policy or record is in force since: the next minute is looked at by it.
	}
	if err != nil {
		return err
	}
	scopes := slices.SortedFunc(maps.Keys(found), func(a, b admission.Scope) int { return most(found, a, b) })
	for _, scope := range scopes[:min(len(scopes), max(0, maxUntold-len(d.untold)))] { // They push no alarm out.
		u := found[scope]
		if !was[scope] {
			s.config.Logger.Warn().Str("kind", store.AnomalyNearLimit).Str("of", "scope").Str("name", string(scope)).Float64("rate", u.tokens).Float64("usual", u.most).
				Float64("score", u.part()).Msg("limit is nearly used")
		}
		d.untold = append(d.untold, store.Anomaly{
			Kind: store.AnomalyNearLimit, Of: "scope", Name: string(scope), Minute: time.Unix(minute*60, 0), Rate: u.tokens, Usual: u.most, Score: u.part(),
		})
	}
	return nil
}

// withValues adds what was counted of values of dimensions in the minute, where there are any to be looked at.
func (s *Scheduler) withValues(ctx context.Context, by *policy.Compiled, minute int64, counted map[admission.Scope]store.Minute) (map[admission.Scope]store.Minute, error) {
	if by.WarnAt() == 0 || len(by.Dimensions()) == 0 {
		return counted, nil
	}
	values, err := s.store.Nearby(ctx, time.Unix(minute*60, 0))
	if err != nil || len(values) == 0 {
		return counted, err
	}
	maps.Copy(values, counted)
	return values, nil
}
