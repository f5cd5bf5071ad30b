package limits

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// Rates returns what was decided in a minute: two hashes, in portions.
func (s *Limits) Rates(ctx context.Context, minute time.Time) (r store.Rates, err error) {
	at := minute.Unix() / 60
	r.Tenants, r.Queues, r.Scopes = map[string]store.Decided{}, map[string]store.Decided{}, map[admission.Scope]store.Minute{}
	counts, err := s.conn.WholeHash(ctx, s.conn.Partition.Counts(at), "")
	if err != nil {
		return r, fmt.Errorf("read counts: %w", err)
	}
	for name, text := range counts {
		one := minuteOf(at, text)
		r.Scopes[admission.Scope(name)] = one
		decided := store.Decided{Allowed: one.Allowed, Refused: one.Refused, Partial: one.Partial}
		switch scope := admission.Scope(name); {
		case scope == admission.Global:
			r.All = decided
		case scope.Level() == admission.LevelTenant:
			r.Tenants[name] = decided
		}
	}
	watched, err := s.conn.WholeHash(ctx, s.conn.Partition.Watched(at), "")
	if err != nil {
		return r, fmt.Errorf("read counts of queues: %w", err)
	}
	r.Watched = len(watched) > 0
	for field, text := range watched {
		what, queue, _ := strings.Cut(field, ":")
		one := r.Queues[queue]
		switch what {
		case "a":
			one.Allowed = redisconn.Whole(text)
		case "r":
			one.Refused = redisconn.Whole(text)
		case "crowded":
			r.Crowded = true
			continue
		default:
			continue
		}
		r.Queues[queue] = one
	}
	return r, nil
}

// ratesKeep is how long a day of points is kept after its last.
const ratesKeep = store.RateHistoryLife + 24*time.Hour

// What a day has beside queues, and how large a point is.
const (
	ratesKnown   = "*"
	ratesCrowded = "!"
	rateSize     = 8
)

// NoteRates keeps a point of the history of queues, as store.Timers says.
func (s *Limits) NoteRates(ctx context.Context, to store.RateNote) error {
	day, point := store.RateSlot(to.At)
	args := append(make([]any, 0, 6+3*len(to.Queues)), s.conn.Now, to.Owner, day, point, int64(ratesKeep/time.Second), store.MaxRateQueues)
	for _, name := range to.Names() {
		one := to.Queues[name]
		args = append(args, name, min(one.Allowed, store.MaxRate), min(one.Refused, store.MaxRate))
	}
	reply, err := s.conn.Run(ctx, "rates", args...)
	if err != nil {
		return err
	}
	switch reply[0] {
	case "held":
		return store.ErrNotHolder
	case "none":
		return store.ErrNotMeasured
	}
	return nil
}

// RateHistory returns what was decided of queues, as store.Buckets says: two round trips.
func (s *Limits) RateHistory(ctx context.Context, queues ...string) (h store.RateHistory, err error) {
	now, err := s.conn.Time(ctx)
	if err != nil {
		return h, err
	}
	h = store.RateHistory{First: now.Truncate(store.RateStep).Add(-store.RateHistoryLife), Queues: make(map[string][]store.Rate, len(queues))}
	for _, queue := range queues {
		h.Queues[queue] = make([]store.Rate, store.RatePoints)
	}
	first, begun := store.RateSlot(h.First)
	last, _ := store.RateSlot(h.First.Add(store.RateHistoryLife - 1))
	pipe := redisconn.Client(s.conn).Pipeline()
	fields := append([]string{ratesKnown, ratesCrowded}, queues...)
	days := make([]*redis.SliceCmd, 0, last-first+1)
	for day := first; day <= last; day++ {
		days = append(days, pipe.HMGet(ctx, s.conn.Partition.Rates(day), fields...))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return h, fmt.Errorf("read history of rates: %w", redisconn.Unread(err))
	}
	for i, day := range days {
		known, crowded := redisconn.TextAt(day.Val(), 0), redisconn.TextAt(day.Val(), 1) != ""
		for q, queue := range queues {
			points, all := redisconn.TextAt(day.Val(), 2+q), h.Queues[queue]
			for point := range known {
				at := i*pointsOfDay + point - begun
				if at < 0 || at >= len(all) || known[point] == 0 || points == "" && crowded {
					continue
				}
				all[at].Known = true
				if from := point * rateSize; from+rateSize <= len(points) {
					all[at].Allowed = binary.BigEndian.Uint32([]byte(points[from : from+4]))
					all[at].Refused = binary.BigEndian.Uint32([]byte(points[from+4 : from+rateSize]))
				}
			}
		}
	}
	return h, nil
}

// pointsOfDay is how many points a day has.
const pointsOfDay = int(24 * time.Hour / store.RateStep)

// NoteAnomalies keeps anomalies that do not go on, as store.Buckets says.
func (s *Limits) NoteAnomalies(ctx context.Context, anomalies []store.Anomaly) (kept int, err error) {
	if len(anomalies) == 0 {
		return 0, nil
	}
	args := append(make([]any, 0, 3+8*len(anomalies)), s.conn.Now, int64(store.AnomalyQuiet/time.Second), store.MaxAnomalies)
	for i := range anomalies {
		a := &anomalies[i]
		args = append(args, a.Kind, a.Of, a.Name, a.Minute.Unix(), figure(a.Rate), figure(a.Usual), figure(a.Deviation), figure(a.Score))
	}
	reply, err := s.conn.RunFor(ctx, 2, "anomaly", args...)
	if err != nil {
		return 0, err
	}
	return int(redisconn.Whole(reply[1])), nil
}

// figure writes a number that people read.
func figure(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }

// AnomaliesAfter returns anomalies after a position, the earliest first, as store.Buckets says.
func (s *Limits) AnomaliesAfter(ctx context.Context, after string, count int) (of store.Stretch[store.Anomaly], err error) {
	pipe := redisconn.Client(s.conn).TxPipeline()
	there := pipe.Exists(ctx, s.conn.Partition.Anomalies())
	all := pipe.XInfoStream(ctx, s.conn.Partition.Anomalies())
	found := pipe.XRangeN(ctx, s.conn.Partition.Anomalies(), redisconn.Behind(after), "+", int64(count))
	of.Position = after
	if _, err := pipe.Exec(ctx); there.Err() == nil && found.Err() == nil && there.Val() == 0 {
		return of, nil // There is no stream of which to tell something.
	} else if err != nil {
		return of, fmt.Errorf("read anomalies: %w", redisconn.Unread(err))
	}
	of.Gone, of.Kept = all.Val().EntriesAdded-all.Val().Length, all.Val().Length
	for _, m := range found.Val() {
		of.Entries, of.Position = append(of.Entries, anomalyOf(m)), m.ID
	}
	return of, nil
}

func anomalyOf(m redis.XMessage) store.Anomaly {
	text := func(field string) string { value, _ := m.Values[field].(string); return value }
	number := func(field string) float64 { x, _ := strconv.ParseFloat(text(field), 64); return x }
	return store.Anomaly{
		ID: m.ID, At: time.UnixMicro(redisconn.Whole(text("at"))), Kind: text("kind"), Of: text("of"), Name: text("name"), Minute: time.Unix(redisconn.Whole(text("minute")), 0),
		Rate: number("rate"), Usual: number("usual"), Deviation: number("deviation"), Score: number("score"),
	}
}
