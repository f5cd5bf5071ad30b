//go:build unix

package dbtest

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

// PostgreSQL makes a cluster in a folder of its own and runs a server on it, for this test alone. It takes some two seconds. As root it runs as
// the user postgres, since the server refuses root.
func PostgreSQL(tb testing.TB) *Server {
	tb.Helper()
	s := newServer(tb, "PostgreSQL", "headgate-pg-")
	s.driver, s.source, s.lingers = "pgx", "host="+s.dir+" user=postgres dbname=postgres", true
	s.first, s.url = s.source, s.source
	programs, as, data := findPostgreSQL(tb), &syscall.SysProcAttr{}, filepath.Join(s.dir, "data")
	if os.Geteuid() == 0 {
		as.Credential = becomePostgres(tb, s.dir)
	}
	run := func(program string, args ...string) *exec.Cmd {
		c := exec.Command(filepath.Join(programs, program), args...) //nolint:noctx,gosec // Kill ends it; it is PostgreSQL.
		c.Dir, c.SysProcAttr = s.dir, as
		return c
	}
	s.command = func() *exec.Cmd {
		return run("postgres", "-D", data, "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=32MB")
	}
	out, err := run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "--locale=C", "-E", "UTF8").CombinedOutput()
	if err != nil {
		tb.Fatalf("initdb: %v\n%s", err, out)
	}
	s.Restart(tb)
	return s
}

// findPostgreSQL returns the folder of the newest server's programs: Debian has them in no PATH.
func findPostgreSQL(tb testing.TB) string {
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

// becomePostgres gives the folder to the user postgres and returns who that is.
func becomePostgres(tb testing.TB, dir string) *syscall.Credential {
	tb.Helper()
	who, err := user.Lookup("postgres")
	if err != nil {
		tb.Fatalf("PostgreSQL refuses to run as root, and there is no other user for it: %v", err)
	}
	uid, _ := strconv.Atoi(who.Uid)
	gid, _ := strconv.Atoi(who.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		tb.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)} //nolint:gosec // they are the system's
}
