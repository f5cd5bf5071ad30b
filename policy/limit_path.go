package policy

import "github.com/headgate/headgate"

// LimitPath returns where the JSON of a policy has the limit of a scope, for At and With. A bad scope is a
// *headgate.FieldError.
func LimitPath(scope headgate.Scope) ([]string, error) {
	tenant, _, _, err := scope.Parts()
	if err != nil {
		return nil, err
	}
	switch scope.Level() {
	case headgate.LevelGlobal:
		return []string{"global"}, nil
	case headgate.LevelTenant:
		return []string{"tenants", tenant, "limit"}, nil
	case headgate.LevelQueue:
		return []string{"queue_limits", string(scope)}, nil
	default:
		return []string{"priority_limits", string(scope)}, nil
	}
}
