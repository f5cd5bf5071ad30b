package memory

import (
	"context"
	"maps"
	"time"
)

// LeaseRight asks for something that so many callers may do at a time, as store.Common.LeaseRight.
func (p *Partition) LeaseRight(_ context.Context, right, token string, limit int, lease time.Duration) (leased bool, err error) {
	p.write(func(m *model, now int64) {
		m.returnRight(right, token)
		if limit == 0 {
			return
		}
		maps.DeleteFunc(m.rights[right], func(_ string, until int64) bool { return until <= now })
		if leased = len(m.rights[right]) < limit; !leased {
			return
		}
		if m.rights[right] == nil {
			m.rights[right] = map[string]int64{}
		}
		m.rights[right][token] = now + lease.Microseconds()
	})
	return leased, nil
}

// ReturnRight ends a lease of LeaseRight.
func (p *Partition) ReturnRight(_ context.Context, right, token string) error {
	p.write(func(m *model, _ int64) { m.returnRight(right, token) })
	return nil
}

func (m *model) returnRight(right, token string) {
	delete(m.rights[right], token)
	if len(m.rights[right]) == 0 {
		delete(m.rights, right)
	}
}
