package redistest

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// TestNetwork: over a cut link nothing arrives, new connections hear nothing either, and what was said arrives when it is healed; a cut
// that refuses resets both. The others notice nothing.
func TestNetwork(t *testing.T) {
	t.Parallel()
	needRedis(t)
	n := newNetwork(t)
	addr := n.places[n.start(t, Options{Cluster: true})].addr
	dial := func(host string) net.Conn {
		t.Helper()
		conn, err := DialFrom(host)(t.Context(), "tcp", addr)
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	ask := func(conn net.Conn) {
		t.Helper()
		_, err := conn.Write([]byte("PING\r\n"))
		must(t, err)
	}
	hear := func(conn net.Conn, within time.Duration) error {
		t.Helper()
		must(t, conn.SetReadDeadline(time.Now().Add(within)))
		_, err := io.ReadFull(conn, make([]byte, len("+PONG\r\n")))
		return err
	}
	near, far := dial(ClientHost(0)), dial(ClientHost(1))
	for _, conn := range []net.Conn{near, far} {
		ask(conn)
		must(t, hear(conn, patience))
	}

	n.Part(ClientHost(1))
	late := dial(ClientHost(1))
	for _, conn := range []net.Conn{near, far, late} {
		ask(conn)
	}
	must(t, hear(near, patience))
	for _, conn := range []net.Conn{far, late} {
		if err := hear(conn, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("over a cut link came %v", err)
		}
	}
	n.Heal()
	for _, conn := range []net.Conn{far, late} {
		must(t, hear(conn, patience))
	}

	n.Part(ClientHost(1))
	n.Refuse()
	if err := hear(far, patience); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("over a cut that refuses: %v", err)
	}
	fresh, err := DialFrom(ClientHost(1))(t.Context(), "tcp", addr)
	if err == nil {
		defer fresh.Close()
		err = hear(fresh, patience)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("over a cut that refuses, a new connection: %v", err)
	}
	ask(near)
	must(t, hear(near, patience))
	n.Heal()
	back := dial(ClientHost(1))
	ask(back)
	must(t, hear(back, patience))
}
