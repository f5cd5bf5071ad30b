package producer

import (
	"context"
	"errors"

	"github.com/headgate/headgate/admission"
)

// Result returns what a job's handler left with worker.SetResult, once the job has completed and for as long as the
// handler said. The error matches headgate.ErrUnknownJob when there is no result (yet, or any more), and
// headgate.ErrUnavailable when Redis did not answer within Config.Timeout.
func (p *Producer) Result(ctx context.Context, tenant, id string) ([]byte, error) {
	if err := errors.Join(admission.ValidateTenant(tenant), admission.ValidateName("id", id, false)); err != nil {
		return nil, err
	}
	ctx, cancel := p.bound(ctx)
	defer cancel()
	return p.store.Result(ctx, admission.Key{Tenant: tenant, ID: id})
}
