package redisstore_test

import (
	"slices"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// walkTypes are the types of jobs. Each has a limit of its own, or none.
var walkTypes = []string{"t", "u:v"}

// typedLimits are limits by type, and how far they are cut by limits of a tenant.
type typedLimits struct {
	limits [2]admission.Limit
	floors [3][2]int
}

// ofType is the limit of jobs of a type, nil for none.
func (w *walk) ofType(tenant, jobType string) *admission.Limit {
	limit := w.typed.limits[slices.Index(walkTypes, jobType)]
	if limit.Disabled || limit.Tokens == 0 {
		return nil
	}
	if _, own := w.owned[tenant]; !own { // As its other limits there: those of records have none here.
		floor := w.typed.floors[max(0, slices.Index(walkTenants, tenant))%len(w.limits)]
		limit = limit.WithFloor(floor[0], floor[1])
	}
	return &limit
}

// ofJobs has questions that name a class ask for the type of a job, too.
func (w *walk) ofJobs(questions []store.Question) {
	for i := range questions {
		if q := &questions[i]; q.Class != "" && !strings.HasPrefix(string(q.Class), admission.TypeMark) {
			jobType := pick(w, "type", walkTypes)
			q.TypeLimit = store.TypeLimitOf(jobType, w.ofType(q.Tenant, jobType))
		}
	}
}
