package mirror

import "time"

// Patient has statements take so long at most.
func (m *Mirror) Patient(patience time.Duration) { m.patience = patience }
