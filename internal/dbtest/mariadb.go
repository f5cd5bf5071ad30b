//go:build unix

package dbtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
)

// MariaDB runs a server in a folder of its own, for this test alone, with an empty database. It takes some half a second. It needs the
// server alone (Debian: mariadb-server-core), no service and no tables of users.
func MariaDB(tb testing.TB) *Server {
	tb.Helper()
	s := newServer(tb, "MariaDB", "headgate-my-")
	data, socket := filepath.Join(s.dir, "data"), filepath.Join(s.dir, "socket")
	s.driver, s.first = "mysql", "root@unix("+socket+")/"
	s.source, s.url = s.first+"headgate", "mysql://root@localhost/headgate?socket="+socket
	args := []string{
		"--no-defaults", "--datadir=" + data, "--socket=" + socket, "--pid-file=" + filepath.Join(s.dir, "pid"), "--skip-networking", "--skip-grant-tables",
		"--innodb-flush-log-at-trx-commit=2", "--innodb-log-file-size=8M", "--innodb-buffer-pool-size=16M", "--innodb-data-file-path=ibdata1:10M:autoextend",
		"--innodb-temp-data-file-path=ibtmp1:4M:autoextend",
	}
	if os.Geteuid() == 0 {
		args = append(args, "--user=root") // It refuses root that nobody asked for.
	}
	program := findMariaDB(tb)
	s.command = func() *exec.Cmd { return exec.Command(program, args...) } //nolint:noctx,gosec // Kill ends it; it is MariaDB.
	if err := os.Mkdir(data, 0o700); err != nil {
		tb.Fatal(err)
	}
	s.Restart(tb)
	db := s.open(tb, s.first)
	defer db.Close()
	if _, err := db.ExecContext(tb.Context(), "CREATE DATABASE headgate"); err != nil {
		tb.Fatal(err)
	}
	return s
}

// findMariaDB returns the server's program, which Debian has in nobody's PATH but root's.
func findMariaDB(tb testing.TB) string {
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
