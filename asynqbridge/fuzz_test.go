package asynqbridge

import (
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/admission"
)

// FuzzHeaders: what the headers of a task claim is within its bounds or refused by name, and those of a job become a task
// without them, or an error that names the one that Fair did not write.
func FuzzHeaders(f *testing.F) {
	f.Add("acme", "high", "3", "25", "30s", "1900000000")
	f.Add("global", "", "-1", "x", "-5ns", "")
	f.Add("", "\x00", "9999999999999999999", "1e3", "2562048h", "-9223372036854775808")
	f.Fuzz(func(t *testing.T, tenant, class, cost, retry, timeout, deadline string) {
		headers := map[string]string{HeaderTenant: tenant, HeaderPriority: class, HeaderCost: cost}
		own, err := claimOf(t.Context(), asynq.NewTaskWithHeaders("send", nil, headers), nil)
		if err != nil {
			if _, named := errors.AsType[*admission.FieldError](err); !named {
				t.Errorf("%q: %v", headers, err)
			}
		} else if own.cost < 1 || own.cost > admission.MaxCost || own.class == "" || admission.ValidateTenant(own.tenant) != nil {
			t.Errorf("%q claims %+v", headers, own)
		}
		job := admission.NewJob("acme", "mail", "send", nil)
		job.Headers = map[string]string{
			"kept": "x", headerMaxRetry: retry, headerTimeout: timeout, headerRetention: timeout, headerDeadline: deadline, headerGroup: class,
		}
		task, options, err := taskOf(&job, time.UnixMicro(7), time.Minute)
		if err != nil {
			if _, named := errors.AsType[*admission.FieldError](err); !named {
				t.Errorf("%q: %v", job.Headers, err)
			}
			return
		}
		if len(task.Headers()) != 2 || task.Headers()["kept"] != "x" || task.Headers()[headerAdmitted] != "7" {
			t.Errorf("%q are left of %q", task.Headers(), job.Headers)
		}
		for _, o := range options {
			if d, ok := o.Value().(time.Duration); ok && o.Type() == asynq.RetentionOpt && d < time.Minute {
				t.Errorf("it is kept for %s", d)
			}
		}
	})
}
