//go:build unix

package pgtest

import (
	"context"
	"database/sql"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

// startTimeout bounds the wait for a server's first answer, recovery included. It takes 0.2 s on an idle machine.
const startTimeout = time.Minute

// Server is one PostgreSQL. Its methods are for one goroutine.
type Server struct {
	bin, dir string
	as       *syscall.SysProcAttr
	process  *exec.Cmd // nil where none runs
	ended    chan error
}

// Start makes a cluster in a folder of its own and runs a server on it, for this test alone. It takes some two seconds.
func Start(tb testing.TB) *Server {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs PostgreSQL, which -short leaves out")
	}
	dir, err := os.MkdirTemp("", "headgate-pg-") // Not tb.TempDir(), which another user may not enter.
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{bin: find(tb), dir: dir, as: &syscall.SysProcAttr{}}
	tb.Cleanup(func() {
		s.Kill(tb)
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	if os.Geteuid() == 0 {
		s.becomePostgres(tb)
	}
	out, err := s.command("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-N", "--locale=C", "-E", "UTF8").CombinedOutput()
	if err != nil {
		tb.Fatalf("initdb: %v\n%s", err, out)
	}
	s.Restart(tb)
	return s
}

// find returns the folder of the newest server's programs: Debian has them in no PATH.
func find(tb testing.TB) string {
	tb.Helper()
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path)
	}
	all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(all) == 0 {
		tb.Fatal("no PostgreSQL. These tests run against a real one: install it, on Debian with `apt-get install postgresql`, on a Mac with " +
			"`brew install postgresql`, or leave them out with `go test -short`.")
	}
	return filepath.Dir(all[len(all)-1])
}

func (s *Server) becomePostgres(tb testing.TB) {
	tb.Helper()
	who, err := user.Lookup("postgres")
	if err != nil {
		tb.Fatalf("PostgreSQL refuses to run as root, and there is no other user for it: %v", err)
	}
	uid, _ := strconv.Atoi(who.Uid)
	gid, _ := strconv.Atoi(who.Gid)
	s.as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)} //nolint:gosec // they are the system's
	if err := os.Chown(s.dir, uid, gid); err != nil {
		tb.Fatal(err)
	}
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

//nolint:noctx // Kill ends it.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(s.bin, name), args...)
	c.Dir, c.SysProcAttr = s.dir, s.as
	return c
}

// URL returns the address of the server's database, for the driver "pgx".
func (s *Server) URL() string { return "host=" + s.dir + " user=postgres dbname=postgres" }

// Open returns connections of the test's own.
func (s *Server) Open(tb testing.TB) *sql.DB {
	tb.Helper()
	db, err := sql.Open("pgx", s.URL())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
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
	<-s.ended // It says that it was killed.
	s.process = nil
}

// Restart starts the server, again after Kill, and returns when it answers.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	db, err := sql.Open("pgx", s.URL())
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	end := time.Now().Add(startTimeout)
	for {
		var said strings.Builder
		// Until the children of a killed server have gone, the next one refuses the shared memory of theirs.
		c := s.command("postgres", "-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=32MB")
		c.Stderr = &said
		if err := c.Start(); err != nil {
			tb.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		for time.Now().Before(end) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			err = db.PingContext(ctx)
			cancel()
			if err == nil {
				s.process, s.ended = c, ended
				return
			}
			select {
			case <-ended:
			case <-time.After(20 * time.Millisecond):
				continue
			}
			break
		}
		if time.Now().After(end) {
			_ = c.Process.Kill()
			tb.Fatalf("PostgreSQL does not answer: %v\n%s", err, said.String())
		}
		time.Sleep(50 * time.Millisecond)
	}
}
