package shown

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Tenant is what the policy has for a tenant, and what is held back of it.
type Tenant struct {
	Tenant string `json:"tenant"`
	// Tier and Limit are those in force, its record counted.
	Tier  string `json:"tier"`
	Limit *Limit `json:"limit,omitempty"`
	// MaxRunning is how many of its jobs workers hold at a time, absent for no bound; its record counted.
	MaxRunning int `json:"max_running,omitempty"`
	// Dispatch is how many of its jobs are dispatched a time, absent for no bound; its record counted.
	Dispatch *Limit `json:"dispatch,omitempty"`
	// Own is what the policy has for the tenant alone, as it is put.
	Own json.RawMessage `json:"own,omitempty"`
	// Record is what it has beside the policy, before what that says.
	Record json.RawMessage `json:"record,omitempty"`

	Holds
}

// TenantPath is where the JSON of a policy has what a tenant has of its own.
func TenantPath(tenant string) []string { return TenantsOwn.Path(tenant) }

// ReadTenant shows a tenant by a policy and the holds in force, which are others' too where they are of all. A bad name is a *headgate.FieldError.
func ReadTenant(ctx context.Context, s store.Deployment, current policy.Policy, tenant string, eyes Eyes) (Tenant, error) {
	v := Tenant{Tenant: tenant}
	if err := admission.ValidateTenant(tenant); err != nil {
		return v, err
	}
	compiled, err := current.Prepare()
	if err != nil {
		return v, err
	}
	if err := store.LearnRecord(ctx, s, compiled, tenant); err != nil {
		return v, err
	}
	config, err := LimitConfigOf(current, compiled, admission.Scope(tenant))
	if err != nil {
		return v, err
	}
	v.Limit, v.Tier, v.MaxRunning = config.InForce, compiled.TierOf(tenant), compiled.MaxRunningOf(tenant)
	if dispatch := compiled.DispatchOf(tenant); dispatch != nil {
		v.Dispatch = limitOf(dispatch)
	}
	if own := compiled.RecordOf(tenant); !own.Empty() {
		if v.Record, err = policy.MarshalRecord(own); err != nil {
			return v, err
		}
	}
	if v.Own, err = current.At(TenantPath(tenant)...); err != nil {
		return v, err
	}
	v.Holds, err = ReadHolds(ctx, s, func(name store.GateName) bool {
		return name == store.TenantGate(tenant) || strings.HasPrefix(string(name), string(store.TenantQueueGate(tenant, "")))
	})
	for i := range v.Scales {
		if scale := &v.Scales[i]; !eyes.Deployment && scale.Scope != store.TenantGate(tenant) {
			scale.Author, scale.Reason = "", "" // A note about everybody is for operators.
		}
	}
	return v, err
}

// TenantSettings are a tenant, with what the policy has for it alone as it is put, {} for nothing.
type TenantSettings struct {
	Tenant string `json:"tenant"`
	// Tier is that which its record names, or else the policy.
	Tier string          `json:"tier"`
	Own  json.RawMessage `json:"own"`
	// Record is what it has beside the policy.
	Record json.RawMessage `json:"record,omitempty"`
}

// Tenants are a page of them: those that the policy names, in the order of their names, and behind them, of a tier, those of which a record alone says
// something, in none.
type Tenants struct {
	Tenants []TenantSettings `json:"tenants"`
	// Cursor continues the list; empty where it ends.
	Cursor string `json:"cursor,omitempty"`
}

// TenantsQuery asks for tenants.
type TenantsQuery struct {
	// Tier is that of those which are asked for: by the policy or a record. Empty asks for all that the policy names.
	Tier string
	// Cursor is that of the page before.
	Cursor string
	// Most make a page; of records a step of a scan more may come. Zero is all that the policy names, and store.MaxRecordsPage of records.
	Most int
}

// byRecord begins the cursors of tenants that a record alone names, and no name of a tenant.
const byRecord = ":"

// A page of tenants looks at no more records than a call may take: recordStep at a time, recordSteps times. Of a rare tier it may be empty.
const (
	recordStep  = 256
	recordSteps = 64
)

// ReadTenants shows a page of tenants. Where the policy has no records it asks the store nothing.
func ReadTenants(ctx context.Context, s store.Deployment, current policy.Policy, q TenantsQuery) (Tenants, error) {
	v := Tenants{Tenants: []TenantSettings{}}
	rest, behind := strings.CutPrefix(q.Cursor, byRecord)
	if !behind {
		rest = ""
		if err := v.ofPolicy(ctx, s, current, q); err != nil || v.Cursor != "" {
			return v, err
		}
	}
	if q.Tier == "" || !current.TenantRecords {
		return v, nil
	}
	return v, v.ofRecords(ctx, s, current, q, rest)
}

// ofPolicy adds those that the policy names.
func (v *Tenants) ofPolicy(ctx context.Context, s store.Deployment, current policy.Policy, q TenantsQuery) error {
	all, err := PartsOf(current, TenantsOwn, q.Cursor, 0)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(all.Parts, recordStep) {
		records := make([]store.TenantRecord, len(some))
		if current.TenantRecords {
			names := make([]string, len(some))
			for i, p := range some {
				names[i] = p.Name
			}
			if records, err = s.Records(ctx, names...); err != nil {
				return err
			}
		}
		for i, p := range some {
			tier := cmp.Or(store.RecordSharesOf(records[i].Text).Tier, current.Tenants[p.Name].Tier, policy.StandardTier)
			if q.Tier != "" && q.Tier != tier {
				continue
			}
			if q.Most > 0 && len(v.Tenants) == q.Most {
				v.Cursor = v.Tenants[q.Most-1].Tenant
				return nil
			}
			v.Tenants = append(v.Tenants, TenantSettings{p.Name, tier, p.Own, records[i].Text})
		}
	}
	return nil
}

// ofRecords adds those whose records name the tier, from a cursor of theirs on, and which the policy does not name.
func (v *Tenants) ofRecords(ctx context.Context, s store.Deployment, current policy.Policy, q TenantsQuery, cursor string) error {
	tiers, err := s.RecordTiers(ctx)
	if err != nil || tiers[q.Tier] == 0 {
		return err
	}
	most := q.Most
	if most == 0 {
		most = len(v.Tenants) + store.MaxRecordsPage
	}
	for range recordSteps {
		if len(v.Tenants) >= most {
			break
		}
		page, err := s.RecordsPage(ctx, store.RecordsQuery{Cursor: cursor, Limit: recordStep})
		if err != nil {
			return err
		}
		for _, r := range page.Records {
			_, named := current.Tenants[r.Tenant]
			if tier := store.RecordSharesOf(r.Text).Tier; tier == q.Tier && !named {
				v.Tenants = append(v.Tenants, TenantSettings{r.Tenant, tier, json.RawMessage("{}"), r.Text})
			}
		}
		if cursor = page.Next; cursor == "" {
			return nil
		}
	}
	v.Cursor = byRecord + cursor
	return nil
}
