package api

import (
	"net/http"
	"strconv"

	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
)

// batchResult is what became of one job of a batch: what a call for it alone would have answered.
type batchResult struct {
	ID      string         `json:"id"`
	Status  int            `json:"status"`
	Verdict *verdictView   `json:"verdict,omitempty"`
	Problem map[string]any `json:"problem,omitempty"`
}

type batchView struct {
	Results    []batchResult `json:"results"`
	Admitted   int           `json:"admitted"`
	Duplicates int           `json:"duplicates"`
	Refused    int           `json:"refused"`
	Failed     int           `json:"failed"`
}

// enqueueBatch puts jobs in by one call of the producer. What can be seen to be wrong before is told of all jobs at once, and
// none enters: who makes batches has a fault in a program, not in a job.
func (a *API) enqueueBatch(r *route.Request) (*route.Answer, error) {
	var ask struct {
		Jobs []newJob `json:"jobs"`
	}
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	for i := range ask.Jobs {
		if _, err := r.Bind(ask.Jobs[i].Tenant); err != nil {
			return nil, err
		}
	}
	header := r.Header.Clone()
	header.Del(idempotencyHeader) // It names one job.
	jobs := make([]admission.Job, len(ask.Jobs))
	var faults []problem.Fault
	for i := range ask.Jobs {
		job, err := ask.Jobs[i].job(header)
		if err != nil {
			faults = append(faults, faultsIn("/jobs/"+strconv.Itoa(i), err)...)
		}
		jobs[i] = job
	}
	if len(faults) > 0 {
		return nil, problem.Invalid(faults...)
	}
	results, _ := a.config.Enqueuer.EnqueueBatch(r.Context(), jobs) // Its error is the first of theirs.
	view := batchView{Results: make([]batchResult, len(results))}
	for i, result := range results {
		view.add(i, jobs[i].ID, result, r.Who.Tenant != "")
	}
	return route.OK(view), nil
}

// faultsIn returns the faults of a part of the body, at their places in all of it.
func faultsIn(place string, err error) []problem.Fault {
	faults := ProblemOf(err).Faults
	for i := range faults {
		if faults[i].Pointer != nil {
			faults[i].Pointer = new(place + *faults[i].Pointer)
		}
	}
	return faults
}

// add shows and counts a result. ofTenant says that it is shown to a tenant, who sees nothing of the limit of all.
func (v *batchView) add(i int, id string, result admission.EnqueueResult, ofTenant bool) {
	at := &v.Results[i]
	at.ID = id
	if result.Err == nil {
		status, verdict := verdictOf(result.Verdict)
		at.Status, at.Verdict = status, &verdict
		if status == http.StatusCreated {
			v.Admitted++
		} else {
			v.Duplicates++
		}
		return
	}
	p := problemFor(ofTenant, &result.Verdict, result.Err)
	p.Faults = faultsIn("/jobs/"+strconv.Itoa(i), p)
	at.Status, at.Problem = p.Status(), p.Part()
	if p.Kind == problem.Refused || p.Kind == problem.RefusedForGood {
		v.Refused++
	} else {
		v.Failed++
	}
}
