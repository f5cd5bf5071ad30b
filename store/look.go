package store

import (
	"time"

	"github.com/headgate/headgate/admission"
)

// The places of a job beside those of a Verdict.
const (
	// PlaceRunning is a worker's hands.
	PlaceRunning admission.Place = "running"
	// PlaceDead is among the dead letters.
	PlaceDead admission.Place = "dead"
	// PlaceEnded is out: the id alone is remembered, for the dedup window.
	PlaceEnded admission.Place = "ended"
	// PlaceUnknown is that of a record which stands in no place. It is a fault: law L4 says that there is none.
	PlaceUnknown admission.Place = "unknown"
)

// Sighting is where a job is and why it is there. Times are by the clock of Redis.
type Sighting struct {
	Key   admission.Key
	Place admission.Place
	// Record is the job as stored. A Large payload is left out: PayloadBytes is its length.
	Record       Record
	PayloadBytes int64
	// Position is that in its lane or its overflow store, from 1, when waiting or spilled; 0 elsewhere.
	Position int
	// EstimatedWait is a guess of the time until a waiting job starts, as in a Verdict; negative when there is none.
	EstimatedWait time.Duration
	// Waits says what the job waits for, the most certain to hold it back first.
	Waits []Wait
	// At is when it is due (later; spilled, if it has a time of its own), or when it died (dead).
	At time.Time
	// Pool is the id of the workers' pool, when ready or running.
	Pool string
	// Worker, Token and Since tell who holds a running job, by which lease, and since when.
	Worker, Token string
	Since         time.Time
	// Cancelled is set when a running job is to end by its worker's next heartbeat; Reason says why.
	Cancelled bool
	// Reason and Text say why a dead letter died, or why a running job was cancelled.
	Reason, Text string
	// History is what became of its deliveries that did not complete it, the oldest first, at most 20.
	History []Delivery
}

// Delivery is one line of a job's history.
type Delivery struct {
	// Outcome is failed, released or lost.
	Outcome string
	// At is when it ended, Ran how long the handler ran; zero where nobody knows.
	At  time.Time
	Ran time.Duration
	// Worker held the job; Text is the error.
	Worker, Text string
}

// ValidateKey returns a *headgate.FieldError for each part of a key that no job can have.
func ValidateKey(key admission.Key) error {
	if err := admission.ValidateTenant(key.Tenant); err != nil {
		return err
	}
	return admission.ValidateName("id", key.ID, false)
}
