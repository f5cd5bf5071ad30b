package unary

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// The codes of gRPC that this package and its handlers answer by.
const (
	OK            = 0
	Invalid       = 3
	NotFound      = 5
	Exhausted     = 8
	Unimplemented = 12
	Internal      = 13
	Unavailable   = 14
)

// Status is an answer without a message. Its text is of ASCII, or is written with percent signs.
//
//nolint:errname // It is an answer, an error only where it is no OK.
type Status struct {
	Code int
	Text string
}

func (s *Status) Error() string { return s.Text }

// Handler answers calls, of many goroutines at once.
type Handler interface {
	// Knows says that there is a method, as /PACKAGE.SERVICE/METHOD. It is asked before a message comes.
	Knows(method string) bool
	// Answer returns the answer's message. The error is a *Status; others are answered as Unavailable. ctx ends with the call or the connection.
	Answer(ctx context.Context, method string, message []byte) ([]byte, error)
}

// Server serves a Handler. Its fields are not to be changed once it serves; each needs a value.
type Server struct {
	Handler Handler
	// MaxMessage is the size of a message in bytes, up to 64 KiB, MaxMetadata that of a call's metadata as HTTP/2 counts it.
	MaxMessage  int
	MaxMetadata uint32
	// MaxCalls is how many calls a connection has at a time.
	MaxCalls int
	// Timeout is for a handshake, for a frame or a message from its begin to its end, and for half a write; Idle is for a connection without calls.
	Timeout, Idle time.Duration
	// OnDenied hears of a call that was answered by an error before it came to the Handler.
	OnDenied func()
	// OnPanic hears of a handler that has panicked: its call is answered as Internal.
	OnPanic func(problem any, stack []byte)

	mu      sync.Mutex
	conns   map[*conn]struct{}
	ending  bool
	ended   chan struct{} // closed when the last connection has gone, while it ends
	accepts []net.Listener
}

// ErrEnded is what Serve returns after Shutdown or Close.
var ErrEnded = errors.New("the server has ended")

// Serve answers the connections of a listener, which may be one of TLS whose clients say h2. It returns when the listener fails, or ErrEnded.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.ending {
		s.mu.Unlock()
		return errors.Join(ErrEnded, l.Close())
	}
	s.accepts = append(s.accepts, l)
	s.mu.Unlock()
	for wait := time.Millisecond; ; {
		client, err := l.Accept()
		switch {
		case err == nil:
			wait = time.Millisecond
			s.begin(client)
		case s.isEnding():
			return ErrEnded
		case isTemporary(err):
			time.Sleep(wait) //nolint:forbidigo // There are no more descriptors; those in use come back.
			wait = min(2*wait, time.Second)
		default:
			return fmt.Errorf("accept: %w", err)
		}
	}
}

// isTemporary is net.Error's Temporary, whose one use that is left is this.
func isTemporary(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	return ok && t.Temporary()
}

func (s *Server) isEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// begin serves a client, unless the server ends.
func (s *Server) begin(client net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		_ = client.Close()
		return
	}
	c := newConn(s, client)
	if s.conns == nil {
		s.conns = map[*conn]struct{}{}
	}
	s.conns[c] = struct{}{}
	go func() {
		c.serve()
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.conns, c); s.ending && len(s.conns) == 0 {
			close(s.ended)
		}
	}()
}

// Shutdown accepts no more connections and calls, and returns when those under way are answered. With the end of ctx it is Close, and returns its error.
func (s *Server) Shutdown(ctx context.Context) error {
	ended := s.end((*conn).leave)
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		s.Close()
		return ctx.Err()
	}
}

// Close ends all connections with their calls, and returns when they have gone.
func (s *Server) Close() {
	<-s.end(func(c *conn) {
		c.close()
		_ = c.net.Close()
	})
}

// end tells each connection how to end.
func (s *Server) end(how func(c *conn)) (ended <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ending {
		s.ending, s.ended = true, make(chan struct{})
		for _, l := range s.accepts {
			_ = l.Close() // Accept says what there is to say.
		}
		if len(s.conns) == 0 {
			close(s.ended)
		}
	}
	for c := range s.conns {
		how(c)
	}
	return s.ended
}

// handshake finishes that of TLS, if there is one.
func handshake(ctx context.Context, client net.Conn) error {
	secure, ok := client.(*tls.Conn)
	if !ok {
		return nil
	}
	if err := secure.HandshakeContext(ctx); err != nil {
		return err
	}
	if protocol := secure.ConnectionState().NegotiatedProtocol; protocol != "h2" {
		return fmt.Errorf("the client speaks %q, not h2", protocol)
	}
	return nil
}
