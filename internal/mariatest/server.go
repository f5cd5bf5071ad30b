//go:build unix

package mariatest

import (
	"context"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
)

// startTimeout bounds the wait for a server's first answer, recovery included. It takes 0.5 s on an idle machine.
const startTimeout = time.Minute

// Server is one MariaDB. Its methods are for one goroutine.
type Server struct {
	bin, dir string
	process  *exec.Cmd     // nil where none runs
	ended    chan struct{} // closed when it has
}

// Start runs a server in a folder of its own, for this test alone, with an empty database. It takes some half a second.
func Start(tb testing.TB) *Server {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs MariaDB, which -short leaves out")
	}
	dir, err := os.MkdirTemp("", "headgate-my-") //nolint:usetesting // The path of tb.TempDir() may be too long for a socket's.
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{bin: find(tb), dir: dir}
	tb.Cleanup(func() {
		s.Kill(tb)
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	if err := os.Mkdir(s.data(), 0o700); err != nil {
		tb.Fatal(err)
	}
	s.Restart(tb)
	db := s.open(tb, "")
	defer db.Close()
	if _, err := db.ExecContext(tb.Context(), "CREATE DATABASE headgate"); err != nil {
		tb.Fatal(err)
	}
	return s
}

// find returns the server's program, which Debian has in nobody's PATH but root's.
func find(tb testing.TB) string {
	tb.Helper()
	for _, name := range []string{"mariadbd", "/usr/sbin/mariadbd"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	tb.Fatal("no MariaDB. These tests run against a real one: install it, on Debian with `apt-get install mariadb-server-core`, on a Mac with " +
		"`brew install mariadb`, or leave them out with `go test -short`.")
	return ""
}

func (s *Server) data() string   { return filepath.Join(s.dir, "data") }
func (s *Server) socket() string { return filepath.Join(s.dir, "socket") }

// Source returns the address of the server's database, for the driver "mysql".
func (s *Server) Source() string { return s.source("headgate") }

func (s *Server) source(database string) string { return "root@unix(" + s.socket() + ")/" + database }

// URL returns the address of the server's database, as headgate outbox takes it.
func (s *Server) URL() string { return "mysql://root@localhost/headgate?socket=" + s.socket() }

// Open returns connections of the test's own.
func (s *Server) Open(tb testing.TB) *sql.DB {
	tb.Helper()
	db := s.open(tb, "headgate")
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

func (s *Server) open(tb testing.TB, database string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("mysql", s.source(database))
	if err != nil {
		tb.Fatal(err)
	}
	return db
}

// Kill ends the server at once, as a crash would. It does nothing where none runs.
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
	args := []string{
		"--no-defaults", "--datadir=" + s.data(), "--socket=" + s.socket(), "--pid-file=" + filepath.Join(s.dir, "pid"), "--skip-networking", "--skip-grant-tables",
		"--innodb-flush-log-at-trx-commit=2", "--innodb-log-file-size=8M", "--innodb-buffer-pool-size=16M", "--innodb-data-file-path=ibdata1:10M:autoextend",
		"--innodb-temp-data-file-path=ibtmp1:4M:autoextend",
	}
	if os.Geteuid() == 0 {
		args = append(args, "--user=root") // It refuses root that nobody asked for.
	}
	var said strings.Builder
	c := exec.Command(s.bin, args...) //nolint:noctx,gosec // Kill ends it; it is MariaDB.
	c.Dir, c.Stderr = s.dir, &said
	if err := c.Start(); err != nil {
		tb.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Wait() // It says how it ended, as it does itself.
	}()
	db := s.open(tb, "")
	defer db.Close()
	for end := time.Now().Add(startTimeout); ; {
		ctx, cancel := context.WithTimeout(tb.Context(), time.Second)
		err := db.PingContext(ctx)
		cancel()
		if err == nil {
			s.process, s.ended = c, ended
			return
		}
		select {
		case <-ended:
			tb.Fatalf("MariaDB has ended: %v\n%s", err, said.String())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(end) {
			_ = c.Process.Kill()
			<-ended
			tb.Fatalf("MariaDB does not answer: %v\n%s", err, said.String())
		}
	}
}
