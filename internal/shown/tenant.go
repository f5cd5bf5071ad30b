package shown

import (
	"cmp"
	"context"
	"encoding/json"
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
	// Own is what the policy has for the tenant alone, as it is put.
	Own json.RawMessage `json:"own,omitempty"`
	// Record is what it has beside the policy, before what that says.
	Record json.RawMessage `json:"record,omitempty"`

	Holds
}

// TenantPath is where the JSON of a policy has what a tenant has of its own.
func TenantPath(tenant string) []string { return TenantsOwn.Path(tenant) }

// ReadTenant shows a tenant by a policy and the holds in force. A bad name is a *headgate.FieldError.
func ReadTenant(ctx context.Context, s store.Deployment, current policy.Policy, tenant string) (Tenant, error) {
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
	v.Limit, v.Tier = config.InForce, compiled.TierOf(tenant)
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
	return v, err
}

// TenantSettings are a tenant of the policy, with what it has of its own as it is put.
type TenantSettings struct {
	Tenant string          `json:"tenant"`
	Tier   string          `json:"tier"`
	Own    json.RawMessage `json:"own"`
}

// Tenants are those that the policy names, in the order of their names.
type Tenants struct {
	Tenants []TenantSettings `json:"tenants"`
	// Cursor continues the list; empty where it ends.
	Cursor string `json:"cursor,omitempty"`
}

// TenantsOf shows the tenants that a policy names and that follow a cursor, those of a tier unless it is empty, most of them; all if
// most is 0.
func TenantsOf(current policy.Policy, tier, cursor string, most int) (Tenants, error) {
	v := Tenants{Tenants: []TenantSettings{}}
	all, err := PartsOf(current, TenantsOwn, cursor, 0)
	if err != nil {
		return v, err
	}
	for _, p := range all.Parts {
		of := cmp.Or(current.Tenants[p.Name].Tier, policy.StandardTier)
		if tier != "" && of != tier {
			continue
		}
		if most > 0 && len(v.Tenants) == most {
			v.Cursor = v.Tenants[most-1].Tenant
			break
		}
		v.Tenants = append(v.Tenants, TenantSettings{p.Name, of, p.Own})
	}
	return v, nil
}
