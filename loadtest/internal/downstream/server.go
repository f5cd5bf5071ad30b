package downstream

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// headerTimeout bounds the reading of a request's header.
const headerTimeout = 5 * time.Second

// Server is one downstream. Its methods may be called from several goroutines.
type Server struct {
	work time.Duration
	addr string // never changed after Start

	mu struct {
		sync.Mutex
		http    *http.Server // nil when dead
		hanging chan struct{}
		serving sync.WaitGroup
	}
}

// Start runs a server whose answers take work.
func Start(ctx context.Context, work time.Duration) (*Server, error) {
	s := &Server{work: work}
	listener, err := listen(ctx, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.addr = listener.Addr().String()
	s.serve(listener)
	return s, nil
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("start a downstream: %w", err)
	}
	return listener, nil
}

func (s *Server) serve(listener net.Listener) {
	server := &http.Server{Handler: http.HandlerFunc(s.answer), ReadHeaderTimeout: headerTimeout}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.http = server
	s.mu.serving.Go(func() { _ = server.Serve(listener) }) // It ends with Close.
}

// URL is where to call it, at all times.
func (s *Server) URL() string { return "http://" + s.addr + "/" }

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	hanging := s.mu.hanging
	s.mu.Unlock()
	if hanging != nil {
		select {
		case <-hanging:
		case <-r.Context().Done():
		}
		return
	}
	timer := time.NewTimer(s.work)
	defer timer.Stop()
	select {
	case <-timer.C:
		w.WriteHeader(http.StatusNoContent)
	case <-r.Context().Done():
	}
}

// Die refuses connections from now on, and ends those that are open.
func (s *Server) Die() {
	s.mu.Lock()
	server := s.mu.http
	s.mu.http = nil
	s.mu.Unlock()
	if server != nil {
		_ = server.Close() // Nothing is lost with it.
	}
}

// Hang accepts requests from now on and does not answer them.
func (s *Server) Hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.hanging == nil {
		s.mu.hanging = make(chan struct{})
	}
}

// Mend brings the server back on its address.
func (s *Server) Mend(ctx context.Context) error {
	s.mu.Lock()
	if s.mu.hanging != nil {
		close(s.mu.hanging)
		s.mu.hanging = nil
	}
	dead := s.mu.http == nil
	s.mu.Unlock()
	if !dead {
		return nil
	}
	listener, err := listen(ctx, s.addr)
	if err != nil {
		return err
	}
	s.serve(listener)
	return nil
}

// Close ends the server.
func (s *Server) Close() {
	s.mu.Lock()
	if s.mu.hanging != nil {
		close(s.mu.hanging)
		s.mu.hanging = nil
	}
	s.mu.Unlock()
	s.Die()
	s.mu.serving.Wait()
}
