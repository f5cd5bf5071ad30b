package store

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Held is what a Hold keeps back.
type Held string

// What a Hold keeps back: a pause the jobs that have entered, a suspension those that would enter.
const (
	HeldDispatch Held = "dispatch"
	HeldEnqueue  Held = "enqueue"
)

// Hold is a pause or a suspension that is in force.
type Hold struct {
	Name GateName
	What Held
	// Author is who set it and Reason why. Since is when it began, zero where an older release set it; Until when it ends, zero for
	// never by itself.
	Author, Reason string
	Since, Until   time.Time
}

// Kind says what a hold is about: queue, tenant, tenant_queue or downstream.
func (h Hold) Kind() string {
	switch kind, _ := h.Name.split(); kind {
	case gateQueue:
		return "queue"
	case gateTenant:
		return "tenant"
	case gateTenantQueue:
		return "tenant_queue"
	}
	return "downstream"
}

// Words tells of it in a sentence, without its end.
func (h Hold) Words() string {
	text := h.Name.Words() + " is paused"
	if h.What == HeldEnqueue {
		text = "enqueueing is suspended for " + h.Name.Words()
	}
	if h.Author != "" {
		text += " by " + h.Author
	}
	if h.Reason != "" {
		text += ", " + h.Reason
	}
	return text
}

// Holds returns every pause and suspension, by name. It is read in pages: what changes meanwhile may be missing.
func (s *Store) Holds(ctx context.Context) ([]Hold, error) {
	gates, err := s.Gates(ctx)
	if err != nil {
		return nil, err
	}
	suspensions, err := s.Suspensions(ctx)
	if err != nil {
		return nil, err
	}
	var all []Hold
	for _, g := range gates {
		if g.Paused() {
			all = append(all, Hold{g.Name, HeldDispatch, g.Author, g.Reason, g.Since, g.Until})
		}
	}
	for _, p := range suspensions {
		all = append(all, Hold{p.Name, HeldEnqueue, p.Author, p.Reason, p.Since, p.Until})
	}
	slices.SortStableFunc(all, func(a, b Hold) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return all, nil
}

// ForgottenAfter is how old a hold without an end is that somebody may have forgotten.
const ForgottenAfter = time.Hour

// holds tells of what is held back, and warns of what somebody may have forgotten.
