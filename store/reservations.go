package store

import (
	"errors"
	"slices"

	"github.com/headgate/headgate/admission"
)

// Reservation is what an id has taken. It is a plain value; the zero Reservation is nothing.
type Reservation struct {
	// Taken is the receipt, as Reserved returns it without the limits of its question and its Usage.
	Taken Taken
	// Ref is the id for Commit: no two reservations have the same.
	Ref string
	// Counted says that its usage is kept.
	Counted bool
	// Again says that the id had taken it before the call.
	Again bool
	// Beside are what became of the questions of dimensions, in their order; also of a reservation that is refused. Reserved does not tell it.
	Beside []Answer
}

// The errors of reservations.
var (
	// ErrReservationOther means that the id of a reservation has taken another number of tokens, or of another scope.
	ErrReservationOther = errors.New("the id of the reservation is in use for other tokens")
	// ErrNoReservation means that an id has taken nothing, or longer ago than Taken.Kept.
	ErrNoReservation = errors.New("nothing is known of the reservation")
)

// ValidateReservation returns a *headgate.FieldError unless id is 1-128 bytes of [A-Za-z0-9._:@/-].
func ValidateReservation(id string) error { return admission.ValidateName("reservation", id, false) }

// Answered returns what the id is answered that asks these questions, the first of which is its own and the others of dimensions: what it has taken, with
// the limits of the questions; or ErrReservationOther where that is of other scopes or another cost. It writes to what Taken.Beside holds.
func (r Reservation) Answered(questions []Question) (Answer, Reservation, error) {
	t, q := &r.Taken, &questions[0]
	if kept := &t.Question; kept.Scope() != q.Scope() || kept.Cost != q.Cost && !q.Estimated || len(t.Beside) != len(questions)-1 {
		return Answer{}, Reservation{}, ErrReservationOther
	}
	t.Question.Limits, t.Question.Usage, t.Question.Record = q.Limits, q.Usage, q.Record
	for i := range questions[1:] {
		way := &questions[i+1]
		at := slices.IndexFunc(t.Beside, func(b Taken) bool { return b.Question.Scope() == way.Scope() })
		if at < 0 {
			return Answer{}, Reservation{}, ErrReservationOther
		}
		b := &t.Beside[at]
		b.Question.Limits, b.Question.MaxKeys, b.Question.Record = way.Limits, way.MaxKeys, way.Record
		r.Beside = append(r.Beside, b.answer())
	}
	return t.answer(), r, nil
}

// NewTaken is the receipt of questions that were granted together: the first one's, with those of the others beside it.
func NewTaken(version int64, at Moment, questions []Question, answers []Answer) Taken {
	t := newTaken(version, at, &questions[0], &answers[0])
	for i := range questions[1:] {
		t.Beside = append(t.Beside, newTaken(version, at, &questions[i+1], &answers[i+1]))
	}
	return t
}

func newTaken(version int64, at Moment, q *Question, a *Answer) Taken {
	t := Taken{Question: *q, Version: version, At: at, Shared: a.Shared}
	for level, left := range a.Left {
		t.Left[level] = int64(left)
	}
	return t
}

// Questions returns the receipt's own and those beside it.
func (t *Taken) Questions() []Question {
	questions := append(make([]Question, 0, 1+len(t.Beside)), t.Question)
	for i := range t.Beside {
		questions = append(questions, t.Beside[i].Question)
	}
	return questions
}

// answer is the one to which a receipt belongs.
func (t *Taken) answer() Answer {
	a := Answer{Verdict: admission.Verdict{Decision: admission.Admitted}, Shared: t.Shared}
	for level, left := range t.Left {
		a.Left[level] = admission.Micro(left)
	}
	return a
}
