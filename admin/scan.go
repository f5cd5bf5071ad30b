package admin

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/headgate/headgate/store"
)

// Bounds of what is known of scans.
const (
	// maxScanners is how many credentials are watched in a minute.
	maxScanners = 1000
	// maxScans is how many scans wait to be told of. Those beyond are not.
	maxScans = 64
	// longestName is how many bytes of a credential's name are told: that of a token is as long as its issuer likes.
	longestName = 256
	// scanTimeout bounds the call that tells.
	scanTimeout = 2 * time.Second
)

// scans counts by credential and minute for how many different things it asked that are not there: others' tenants among them, which are
// answered as if they were not. Its methods may be called from several goroutines.
type scans struct {
	seed  maphash.Seed
	found chan store.Anomaly
	mu    struct {
		sync.Mutex

		minute int64
		of     map[string]map[uint64]struct{}
	}
}

func newScans() *scans {
	return &scans{seed: maphash.MakeSeed(), found: make(chan store.Anomaly, maxScans)}
}

// note notes that a credential asked for what is not there, by the target of the call and its body, at a time. One that has done so more often than most is
// told of once a minute. most is 0 where rates are not watched.
func (s *scans) note(who, what string, body []byte, most int, now time.Time) {
	if most == 0 {
		return
	}
	var hash maphash.Hash
	hash.SetSeed(s.seed)
	_, _ = hash.WriteString(what)
	_ = hash.WriteByte(0)
	_, _ = hash.Write(body)
	minute := now.Unix() / 60
	if !s.count(who, hash.Sum64(), most, minute) {
		return
	}
	select {
	case s.found <- store.Anomaly{
		Kind: store.AnomalyScan, Of: store.OfCredential, Name: clip(who, longestName), Minute: time.Unix(minute*60, 0), Rate: float64(most + 1), Usual: float64(most),
	}:
	default:
	}
}

// count reports whether it is the first beyond most.
func (s *scans) count(who string, what uint64, most int, minute int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.minute != minute {
		s.mu.minute, s.mu.of = minute, map[string]map[uint64]struct{}{}
	}
	of := s.mu.of[who]
	if of == nil {
		if len(s.mu.of) >= maxScanners {
			return false
		}
		of = map[uint64]struct{}{}
		s.mu.of[who] = of
	}
	if _, known := of[what]; known || len(of) > most {
		return false
	}
	of[what] = struct{}{}
	return len(of) > most
}

// run tells of scans until ctx ends. What cannot be told is told of to failed.
func (s *scans) run(ctx context.Context, to store.Deployment, failed func(error)) {
	for {
		select {
		case scan := <-s.found:
			bounded, cancel := context.WithTimeout(ctx, scanTimeout)
			_, err := to.NoteAnomalies(bounded, []store.Anomaly{scan})
			cancel()
			if err != nil {
				failed(err)
			}
		case <-ctx.Done():
			return
		}
	}
}
