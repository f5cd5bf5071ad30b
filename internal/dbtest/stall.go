//go:build unix

package dbtest

import (
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Stall is a way to a server that can stop answering without closing anything, as a server does whose machine or disk hangs.
type Stall struct {
	// Source is the address for the driver.
	Source string

	listener net.Listener
	socket   string
	mu       struct {
		sync.Mutex

		at      []byte
		stalled chan struct{} // closed when it has stalled
		resumed chan struct{} // closed when it goes on
	}
}

// Stall returns one before the server, for this test alone.
func (s *Server) Stall(tb testing.TB) *Stall {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(listener.Addr().String())
	w := &Stall{listener: listener, socket: filepath.Join(s.dir, "socket"), Source: strings.Replace(s.source, "unix("+s.dir+"/socket)", "tcp("+listener.Addr().String()+")", 1)}
	if s.driver == "pgx" {
		w.socket, w.Source = filepath.Join(s.dir, ".s.PGSQL.5432"), strings.Replace(s.source, "host="+s.dir, "host="+host+" port="+port+" sslmode=disable", 1)
	}
	w.mu.resumed = make(chan struct{})
	close(w.mu.resumed)
	tb.Cleanup(func() {
		_ = listener.Close()
		w.Resume()
	})
	go w.accept(tb.Context())
	return w
}

// At makes it stall as soon as a client sends a text, with an empty one as soon as it sends anything. The channel is closed then.
func (w *Stall) At(text string) (stalled <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.at, w.mu.stalled = []byte(text), make(chan struct{})
	return w.mu.stalled
}

// Resume lets it go on: what was sent meanwhile arrives.
func (w *Stall) Resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.stalled = nil
	select {
	case <-w.mu.resumed:
	default:
		close(w.mu.resumed)
	}
}

// pass returns when what a client sent may go on.
func (w *Stall) pass(sent []byte) {
	w.mu.Lock()
	select {
	case <-w.mu.resumed:
		if w.mu.stalled != nil && bytes.Contains(sent, w.mu.at) {
			close(w.mu.stalled)
			w.mu.resumed = make(chan struct{})
		}
	default:
	}
	resumed := w.mu.resumed
	w.mu.Unlock()
	<-resumed
}

func (w *Stall) accept(ctx context.Context) {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			w.pass(nil)
			server, err := new(net.Dialer).DialContext(ctx, "unix", w.socket)
			if err != nil {
				return
			}
			defer server.Close()
			go func() {
				_, _ = io.Copy(client, server)
				_ = client.Close()
			}()
			for buffer := make([]byte, 64<<10); ; {
				n, err := client.Read(buffer)
				if w.pass(buffer[:n]); err != nil {
					return
				}
				if _, err := server.Write(buffer[:n]); err != nil {
					return
				}
			}
		}()
	}
}
