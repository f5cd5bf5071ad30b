package worker

import "sync"

// suspects lets the handlers of one session at a time run jobs that were lost with a worker before. Which of them run together Redis
// decides, for a session, that is in one partition and under one name: see noteStart.
type suspects struct {
	mu struct {
		sync.Mutex
		session *session
		running int
	}
}

// tryBegin reports whether a suspect of s may begin; end is to follow if so.
func (g *suspects) tryBegin(s *session) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.running > 0 && g.mu.session != s {
		return false
	}
	g.mu.session = s
	g.mu.running++
	return true
}

func (g *suspects) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.running--
}
