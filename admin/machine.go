package admin

import (
	"fmt"
	"net/http"

	"github.com/headgate/headgate/admin/internal/gauge"
	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/internal/guard"
)

// watch makes the guard of the process, nil for none.
func (s *Server) watch() (err error) {
	s.machine, err = guard.New(s.config.Guard, guard.Parts{
		Logger: s.config.Logger, Sampler: s.config.sampler, Bounds: s.bounded,
		Changed: func(c guard.Change) {
			s.stats.Changed(c)
			if s.config.Guarded != nil {
				s.config.Guarded(c)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	return nil
}

// bounded returns how much is under way of what the server bounds itself.
func (s *Server) bounded() []guard.Reading {
	all := []guard.Reading{{Kind: guard.Concurrent, Value: float64(s.turns.underWay()), Limit: float64(s.config.MaxCalls), Bounded: true}}
	if d := s.door.Load(); d != nil {
		all = append(all, guard.Reading{Kind: guard.Connections, Value: float64(d.connections()), Limit: float64(d.most), Bounded: true})
	}
	return all
}

// connections returns what there is to tell of those; a server of the program's own has none to tell of.
func (s *Server) connections() gauge.Connections {
	d := s.door.Load()
	if d == nil {
		return gauge.Connections{}
	}
	return d.told()
}

// begin refuses a call that would begin something while the process uses too much. What is said of jobs in hand is heard all the same: they
// would be lost with their lease. Who asks again at once waits for the answer, as for other refusals.
func (s *Server) begin(w http.ResponseWriter, r *http.Request, rt route.Route) error {
	if s.machine == nil || rt.Load == route.Kept || rt.UnderWay {
		return nil
	}
	wait, ok := s.machine.TryBegin()
	if ok {
		s.machine.Hold(r.Context())
		return nil
	}
	s.requests.Refused("guard")
	s.hold(r.Context(), w, callOf(r.Context()).who)
	p := problem.New(problem.Busy, "the server uses as much of its machine as it may, and takes no new calls; this one was not begun")
	p.RetryAfter = wait
	return p
}
