package shown

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/policy"
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

// Forecast is what a queue is foreseen to be asked for in the next hour: jobs admitted and refused, a minute.
type Forecast struct {
	Queue string `json:"queue"`
	// Points are ten minutes each, the earliest first. What is not known of one is left out.
	Points []ForecastPoint `json:"points,omitempty"`
	// Peak is the highest of them, and PeakAt when it begins.
	Peak   float64    `json:"peak_per_minute"`
	PeakAt *time.Time `json:"peak_at,omitempty"`
	// Last is what came in the last ten minutes, absent where it is not known; Most the most that was admitted in any ten minutes of the
	// days that are kept, and MostAt when these began.
	Last   *float64   `json:"last_per_minute,omitempty"`
	Most   float64    `json:"most_admitted_per_minute"`
	MostAt *time.Time `json:"most_admitted_at,omitempty"`
	// Days are those since the first point.
	Days  float64        `json:"days"`
	Error *ForecastError `json:"error,omitempty"`
	// Lacks says why there is no forecast.
	Lacks string `json:"lacks,omitempty"`
}

// ForecastPoint is ten minutes.
type ForecastPoint struct {
	At time.Time `json:"at"`
	// Jobs are foreseen, Yesterday is what came at this time of yesterday, Week what did a week ago.
	Jobs      *float64 `json:"per_minute,omitempty"`
	Yesterday *float64 `json:"yesterday_per_minute,omitempty"`
	Week      *float64 `json:"week_ago_per_minute,omitempty"`
}

// ForecastError is how far forecasts of the last day were away, and would have been had they said what came a day before: the mean of absolute
// errors in jobs a minute, and that over the mean of what came, absent where nothing did.
type ForecastError struct {
	Mean      float64  `json:"mean_per_minute"`
	Part      *float64 `json:"part,omitempty"`
	Naive     float64  `json:"naive_mean_per_minute"`
	NaivePart *float64 `json:"naive_part,omitempty"`
	Forecasts int      `json:"forecasts"`
}

// Forecasts are those of all queues, by name.
type Forecasts struct {
	Forecasts []Forecast `json:"forecasts"`
}

// NoForecastError says that there is no forecast of a queue, and why.
type NoForecastError struct{ Queue, Lacks string }

// Error names the queue and what is lacking.
func (e *NoForecastError) Error() string { return "queue " + e.Queue + ": " + e.Lacks }

// ReadForecast returns the forecast of a queue. One that nobody knows is store.ErrUnknownQueue, one without a forecast a *NoForecastError.
func ReadForecast(ctx context.Context, s store.Deployment, queue string) (f Forecast, err error) {
	names, err := s.QueueNames(ctx)
	if err != nil {
		return f, err
	}
	if !slices.Contains(names, queue) {
		return f, fmt.Errorf("%w %s", store.ErrUnknownQueue, queue)
	}
	all, err := readForecasts(ctx, s, []string{queue})
	if err != nil {
		return f, err
	}
	if all[0].Lacks == "" {
		return all[0], nil
	}
	text, err := s.Policy(ctx)
	if err != nil {
		return f, err
	}
	current, err := policy.Stored(text)
	if err != nil {
		return f, err
	}
	none := &NoForecastError{queue, all[0].Lacks}
	if current.Anomalies == nil || !current.Anomalies.Forecast {
		none.Lacks += `; the policy has nobody keep what queues are asked for: {"anomalies": {"forecast": true}} has it kept`
	}
	return f, none
}

// ReadForecasts returns the forecasts of all queues, by name, up to a number.
func ReadForecasts(ctx context.Context, s store.Deployment, most int) (Forecasts, error) {
	names, err := s.QueueNames(ctx)
	if err != nil || len(names) == 0 {
		return Forecasts{[]Forecast{}}, err
	}
	all, err := readForecasts(ctx, s, names[:min(len(names), most)])
	return Forecasts{all}, err
}

func readForecasts(ctx context.Context, s store.Deployment, queues []string) ([]Forecast, error) {
	all := make([]Forecast, 0, len(queues))
	for some := range slices.Chunk(queues, store.MaxRateQueues) {
		history, err := s.RateHistory(ctx, some...)
		if err != nil {
			return nil, err
		}
		for _, queue := range some {
			all = append(all, forecastOf(queue, history.First, history.Queues[queue]))
		}
	}
	return all, nil
}

// forecastOf foresees by the points of a queue, of which the first began at a time.
func forecastOf(queue string, first time.Time, points []store.Rate) Forecast {
	v := Forecast{Queue: queue}
	series, begun := make([]float64, len(points)), -1
	for i, p := range points {
		series[i] = forecast.Unknown()
		if !p.Known {
			continue
		}
		series[i] = float64(p.Allowed) + float64(p.Refused)
		if begun < 0 && series[i] > 0 {
			begun = i
		}
		if admitted := perMinute(float64(p.Allowed)); *admitted > v.Most {
			v.Most, v.MostAt = *admitted, new(Moment(first.Add(time.Duration(i)*store.RateStep)))
		}
	}
	if begun >= 0 {
		v.Days = math.Round(10*float64(len(points)-begun)/float64(forecast.Day)) / 10
	}
	if n := len(series); n > 0 {
		v.Last = perMinute(series[n-1])
	}
	f, err := forecast.Of(series)
	if err != nil {
		v.Lacks = err.Error()
		return v
	}
	for h, jobs := range f.Points {
		at := len(series) + h
		p := ForecastPoint{At: Moment(first.Add(time.Duration(at) * store.RateStep)), Jobs: perMinute(jobs), Yesterday: perMinute(series[at-forecast.Day]), Week: perMinute(series[at-forecast.Week])}
		if v.Points = append(v.Points, p); p.Jobs != nil && (v.PeakAt == nil || *p.Jobs > v.Peak) {
			v.Peak, v.PeakAt = *p.Jobs, new(p.At)
		}
	}
	v.Error = &ForecastError{*perMinute(f.Mean), known(f.Part()), *perMinute(f.Naive), known(f.NaivePart()), f.Forecasts}
	return v
}

// perMinute makes jobs in ten minutes jobs a minute, to a hundredth; nil where they are not known.
func perMinute(jobs float64) *float64 {
	if !forecast.Known(jobs) {
		return nil
	}
	return new(math.Round(100*jobs/store.RateStep.Minutes()) / 100)
}

// A point of the store is one of a forecast.
var _ = [1]struct{}{}[store.RateStep-forecast.Step]
