package shown

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/store"
)

// Anomaly is a rate that was not usual.
type Anomaly struct {
	ID string `json:"id"`
	// Kind is what was not usual: surge, silence, refusal_surge, scope_scan or near_limit.
	Kind string `json:"kind"`
	// Of is whose rate it is: deployment, tenant, queue, credential or scope; Name which, absent of the deployment.
	Of   string `json:"of"`
	Name string `json:"name,omitempty"`
	// Minute is the one at which it was found, Rate what was counted in it; of a near_limit the
	// tokens that were used.
	Minute time.Time `json:"minute"`
	Rate   float64   `json:"rate"`
	// Usual is what is: the median of the hour before, of a scope_scan the bound, of a near_limit the tokens of the limit. Deviation is how
	// far from it is usual, Score how many of these Rate is away, of a near_limit Rate over Usual; absent of a scope_scan.
	Usual     float64   `json:"usual"`
	Deviation float64   `json:"deviation,omitempty"`
	Score     float64   `json:"score,omitempty"`
	At        time.Time `json:"at"`
}

// Anomalies are the newest, the newest first.
type Anomalies struct {
	Anomalies []Anomaly `json:"anomalies"`
}

// ReadAnomalies returns up to limit anomalies of a kind, "" for all.
func ReadAnomalies(ctx context.Context, s store.Deployment, kind string, limit int) (v Anomalies, err error) {
	all, err := s.AnomaliesAfter(ctx, "", store.MaxAnomalies)
	if err != nil {
		return v, err
	}
	v.Anomalies = []Anomaly{}
	for _, a := range slices.Backward(all.Entries) {
		if len(v.Anomalies) < limit && (kind == "" || kind == a.Kind) {
			v.Anomalies = append(v.Anomalies, Anomaly{
				ID: a.ID, Kind: a.Kind, Of: a.Of, Name: a.Name, Minute: Moment(a.Minute), Rate: a.Rate, Usual: a.Usual, Deviation: a.Deviation,
				Score: a.Score, At: Moment(a.At),
			})
		}
	}
	return v, nil
}
