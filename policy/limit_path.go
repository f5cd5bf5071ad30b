package policy

import "github.com/headgate/headgate/admission"

// LimitPath returns where the JSON of a policy has the limit of a scope, for At and With. A bad scope is a
// *headgate.FieldError.
func LimitPath(scope admission.Scope) ([]string, error) {
	tenant, _, _, err := scope.Parts()
	if err != nil {
		return nil, err
	}
	switch scope.Level() {
	case admission.LevelGlobal:
		return []string{"global"}, nil
	case admission.LevelTenant:
		return []string{"tenants", tenant, "limit"}, nil
	case admission.LevelQueue:
		return []string{"queue_limits", string(scope)}, nil
	default:
		return []string{"priority_limits", string(scope)}, nil
	}
}
