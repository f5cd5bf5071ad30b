package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

func explainJob(ctx context.Context, s store.Deployment, name string, eyes shown.Eyes) (Explanation, error) {
	key, err := keyOf(name)
	if err != nil {
		return Explanation{}, err
	}
	sight, err := s.Look(ctx, key)
	if err != nil {
		return Explanation{}, err
	}
	in, err := readRules(ctx, s)
	if err != nil {
		return Explanation{}, err
	}
	if err := store.LearnRecord(ctx, s, in.compiled, key.Tenant); err != nil {
		return Explanation{}, err
	}
	e := Explanation{Summary: whereabouts(&sight), PolicyVersion: in.policy.Version, Reasons: []Reason{}}
	if err := e.addLease(ctx, s, &sight); err != nil {
		return Explanation{}, err
	}
	for _, wait := range sight.Waits {
		reason, err := in.waiting(ctx, s, wait, &sight, eyes)
		if err != nil {
			return Explanation{}, err
		}
		if wait.Kind == store.WaitTurn && len(e.Reasons) > 0 { // What stands above holds back those before it too.
			reason.Binds, reason.Rule, reason.Change = false, nil, ""
		}
		e.add(reason)
	}
	switch {
	case sight.Place == store.PlaceDead:
		e.add(Reason{
			Kind: KindDead, Binds: true, Text: "it died of " + sight.Reason + because(eyes.Said(sight.Text)),
			Change: fmt.Sprintf("headgate redrive %s %s", key.Tenant, key.ID),
		})
	case !sight.Record.Job.Deadline.IsZero() && len(sight.Waits) > 0:
		reason, err := in.deadline(&sight)
		if err != nil {
			return Explanation{}, err
		}
		e.add(reason)
	}
	return e, nil
}

// waiting tells of one thing that a job waits for.
func (r *rules) waiting(ctx context.Context, s store.Deployment, wait store.Wait, g *store.Sighting, eyes shown.Eyes) (Reason, error) {
	reason := Reason{Kind: string(wait.Kind), Binds: true, Text: wait.Text, Until: wait.Until}
	var err error
	if reason.Rule, err = r.ofWait(wait, &g.Record.Job); err != nil {
		return reason, err
	}
	reason.Change = remedy(wait, g, reason.Rule)
	switch {
	case wait.Kind == store.WaitBreaker:
		err = reason.ofForce(ctx, s, g.Record.Job.Service())
	case wait.Kind == store.WaitTime && len(g.History) > 0:
		reason.Text += because(eyes.Said(g.History[len(g.History)-1].Text))
	}
	return reason, err
}

// ofForce says of a breaker that was forced who did it, and that nothing else ends it.
func (reason *Reason) ofForce(ctx context.Context, s store.Deployment, downstream string) error {
	b, err := s.Breaker(ctx, downstream)
	if err != nil || !b.Forced {
		if errors.Is(err, store.ErrNoBreaker) {
			return nil // It was forgotten since the job was looked at.
		}
		return err
	}
	author, err := forcer(ctx, s, downstream)
	reason.Text += forcedBy(author)
	reason.Change = resetBreaker(downstream)
	return err
}

// forcer returns who forced a breaker last, by the audit; empty where that does not tell.
func forcer(ctx context.Context, s store.Deployment, downstream string) (author string, err error) {
	page, err := s.Audit(ctx, store.AuditQuery{Limit: store.MaxPage, Name: downstream})
	if err != nil {
		return "", err
	}
	for _, entry := range page.Entries {
		if entry.Downstream == downstream && (entry.Action == store.AuditOpen || entry.Action == store.AuditClosed) {
			return entry.Author, nil
		}
	}
	return "", nil
}

func forcedBy(author string) string {
	if author == "" {
		return ""
	}
	return " (" + author + ")"
}

// resetBreaker is the command that closes a breaker.
func resetBreaker(downstream string) string {
	return "headgate breaker reset " + downstream + " --reason TEXT"
}

// addLease tells of a running job until when its worker has it without being heard of.
func (e *Explanation) addLease(ctx context.Context, s store.Deployment, g *store.Sighting) error {
	if g.Place != store.PlaceRunning || g.Worker == "" {
		return nil
	}
	workers, err := s.Partitions()[s.PartitionOf(g.Key.Tenant)].Workers(ctx)
	for _, w := range workers {
		if w.Name == g.Worker && !w.LeaseEnd.IsZero() {
			e.Summary += ", until " + clock(w.LeaseEnd) + " unless the worker is heard of before"
		}
	}
	return err
}

// ownJob explains a job to its tenant: what it waits for, without the rules, notes, workers and numbers that are others' too.
func ownJob(ctx context.Context, s store.Deployment, name string, eyes shown.Eyes) (Explanation, error) {
	key, err := keyOf(name)
	if err != nil {
		return Explanation{}, err
	}
	sight, err := s.Look(ctx, key)
	if err != nil {
		return Explanation{}, err
	}
	sight.Pool, sight.Worker, sight.Reason = "", "", eyes.ReasonOf(&sight)
	e := Explanation{Summary: whereabouts(&sight), Reasons: []Reason{}}
	for _, wait := range sight.Waits {
		e.add(Reason{Kind: string(wait.Kind), Binds: true, Text: eyes.WaitText(wait), Until: wait.Until})
	}
	switch {
	case sight.Place == store.PlaceDead:
		e.add(Reason{Kind: KindDead, Binds: true, Text: "it died of " + sight.Reason + because(eyes.Said(sight.Text))})
	case !sight.Record.Job.Deadline.IsZero() && len(sight.Waits) > 0:
		e.add(Reason{Kind: KindDeadline, Text: "it has to start by its deadline, or it expires", Until: sight.Record.Job.Deadline})
	}
	return e, nil
}

// whereabouts says where a job is.
func whereabouts(g *store.Sighting) string {
	switch g.Place {
	case admission.PlaceLater:
		return "waiting for its time"
	case admission.PlaceReady:
		if g.Pool == "" {
			return "ready, for a worker to read"
		}
		return "ready, in the stream of pool " + g.Pool
	case admission.PlaceWaiting:
		return fmt.Sprintf("waiting, at position %d of its lane", g.Position)
	case admission.PlaceSpilled:
		text := fmt.Sprintf("spilled, at position %d of its overflow store", g.Position)
		if g.Record.Away {
			text += ", its body in the second Redis"
		}
		return text
	case store.PlaceRunning:
		text := "running"
		if g.Worker != "" {
			text += " on worker " + g.Worker
		}
		text += " since " + clock(g.Since)
		if g.Cancelled {
			text += ", to be cancelled by its next heartbeat" + because(g.Reason)
		}
		return text
	case store.PlaceDead:
		return "dead since " + clock(g.At)
	case store.PlaceEnded:
		return "ended: its id is remembered for the dedup window, nothing else"
	}
	return "in no place: half of what made it or moved it is missing"
}

func by(author string) string {
	if author == "" {
		return ""
	}
	return " by " + author
}

func because(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// ofWait returns the rule that makes a job wait; nil where none does.
func (r *rules) ofWait(w store.Wait, job *admission.Job) (*Rule, error) {
	switch w.Kind {
	case store.WaitCap, store.WaitRate:
		return r.ofGate(w.Gate, job.Tenant, job.Queue, job.Downstream)
	case store.WaitDepth:
		if own := r.compiled.RecordOf(job.Tenant); own.OverflowAt(job.Queue) != (policy.Overflow{}) {
			return r.recorded(job.Tenant, own, []string{"queues", job.Queue, "overflow"})
		}
		return r.decided("built in: no bound", r.asOf(job.Tenant).OverflowClause(job.Tenant, job.Queue))
	case store.WaitTurn:
		return r.ofWeight(job.Tenant, job.Priority)
	case store.WaitPause, store.WaitBreaker, store.WaitTime, store.WaitType, store.WaitWorkers, store.WaitWaking: // They are no rule's.
	}
	return nil, nil //nolint:nilnil // No rule is an answer.
}

// remedy says what would end a wait that a rule decided, nil for none.
func remedy(w store.Wait, g *store.Sighting, rule *Rule) string {
	job := &g.Record.Job
	switch w.Kind {
	case store.WaitPause:
		return resume(w.Gate, job)
	case store.WaitBreaker:
		return "probes close it when the downstream is well again; " + resetBreaker(job.Service()) + " does so at once"
	case store.WaitCap:
		return "jobs that end, or " + higher(w.Gate, "--max-running", rule, job)
	case store.WaitRate:
		return "time, or " + higher(w.Gate, "--dispatch", rule, job)
	case store.WaitTime:
		return "time alone"
	case store.WaitType:
		return fmt.Sprintf("a worker of queue %s with a handler for type %s; or headgate job cancel %s %s", job.Queue, job.Type, job.Tenant, job.ID)
	case store.WaitDepth:
		return "the tenant's jobs in the queue that end, or a higher bound"
	case store.WaitWorkers:
		return "a worker: headgate worker --queue " + job.Queue
	case store.WaitWaking:
		return "nothing: it is on its way"
	case store.WaitTurn:
		return "more slots of workers, a higher weight of the tenant, or an earlier deadline"
	}
	return ""
}

// resume says how a pause ends.
func resume(gate store.GateName, job *admission.Job) string {
	if what := flags(gate, job.Tenant, job.Queue); what != "" {
		return "headgate resume" + what
	}
	if kind, downstream := gate.Split(); kind == store.KindDownstream && (downstream == job.Downstream || downstream == job.Service()) {
		return "headgate resume --downstream " + downstream
	}
	return "whoever paused it, by store.Deployment.Unpause"
}

// deadline says what becomes of a job that waits too long.
func (r *rules) deadline(g *store.Sighting) (Reason, error) {
	job := &g.Record.Job
	reason := Reason{Kind: KindDeadline, Text: "it has to start by its deadline, or it expires", Until: job.Deadline}
	queue := r.compiled.QueueOf(job.Queue)
	var err error
	if wait := queue.MaxWait; wait > 0 && job.Deadline.Equal(g.Record.Arrival.Add(wait)) {
		reason.Text = "it has to start within its queue's max_wait, held back or not, or it expires"
		reason.Rule, err = r.first("", r.inQueue(job.Queue, "max_wait"))
	}
	reason.Change = "nothing for this job; jobs that are enqueued later may have " + cmp.Or(map[bool]string{true: "a longer max_wait"}[reason.Rule != nil], "a later deadline")
	return reason, err
}
