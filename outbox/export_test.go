package outbox

import "time"

// Patient has statements take so long at most.
func (r *Relay) Patient(patience time.Duration) { r.patience = patience }
