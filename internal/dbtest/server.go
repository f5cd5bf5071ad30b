//go:build unix

package dbtest

import (
	"context"
	"database/sql"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// startTimeout bounds the wait for a server's first answer, recovery included. It takes half a second on an idle machine.
const startTimeout = time.Minute

// Server is one database's. Its methods are for one goroutine.
type Server struct {
	// name is the product's; dir has all that is the server's.
	name, dir string
	// driver and source are for database/sql, first is the source before there is a database of the test's.
	driver, source, first string
	url                   string
	// command returns the server's process, to be started.
	command func() *exec.Cmd
	// lingers says that children of a killed server keep the next one from starting until they have gone.
	lingers bool
	process *exec.Cmd     // nil where none runs
	ended   chan struct{} // closed when it has
}

// newServer makes the folder, which ends with the test, as does what runs there.
func newServer(tb testing.TB, name, folder string) *Server {
	tb.Helper()
	if testing.Short() {
		tb.Skipf("needs %s, which -short leaves out", name)
	}
	dir, err := os.MkdirTemp("", folder) //nolint:usetesting // The path of tb.TempDir() may be too long for a socket's, and shut to another user.
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{name: name, dir: dir}
	tb.Cleanup(func() {
		s.Kill(tb)
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// Driver returns the name of the driver for database/sql.
func (s *Server) Driver() string { return s.driver }

// Source returns the address of the server's database for its driver.
func (s *Server) Source() string { return s.source }

// URL returns the address of the server's database, as headgate outbox takes it.
func (s *Server) URL() string { return s.url }

// Open returns connections of the test's own.
func (s *Server) Open(tb testing.TB) *sql.DB {
	tb.Helper()
	db := s.open(tb, s.source)
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

func (s *Server) open(tb testing.TB, source string) *sql.DB {
	tb.Helper()
	db, err := sql.Open(s.driver, source)
	if err != nil {
		tb.Fatal(err)
	}
	return db
}

// Kill ends the server at once, as a crash would; its children notice. It does nothing where none runs.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	if s.process == nil {
		return
	}
	if err := s.process.Process.Kill(); err != nil {
		tb.Error(err)
	}
	<-s.ended
	s.process = nil
}

// Restart starts the server, again after Kill, and returns when it answers.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	db := s.open(tb, s.first)
	defer db.Close()
	for end := time.Now().Add(startTimeout); ; {
		var said strings.Builder
		s.process, s.ended = s.command(), make(chan struct{})
		s.process.Dir, s.process.Stderr = s.dir, &said
		if err := s.process.Start(); err != nil {
			s.process = nil
			tb.Fatal(err)
		}
		go func() {
			defer close(s.ended)
			_ = s.process.Wait() // It says how it ended, as it does itself.
		}()
		err := s.answers(tb, db, end)
		if err == nil {
			return
		}
		select {
		case <-s.ended:
			s.process = nil
		default:
			s.Kill(tb)
		}
		if !s.lingers || time.Now().After(end) {
			tb.Fatalf("%s does not answer: %v\n%s", s.name, err, said.String())
		}
		<-time.After(50 * time.Millisecond)
	}
}

// answers waits until the server does; the error is that of the last try before it ended, or before the end.
func (s *Server) answers(tb testing.TB, db *sql.DB, end time.Time) (err error) {
	tb.Helper()
	for {
		ctx, cancel := context.WithTimeout(tb.Context(), time.Second)
		err = db.PingContext(ctx)
		cancel()
		if err == nil || time.Now().After(end) {
			return err
		}
		select {
		case <-s.ended:
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}
