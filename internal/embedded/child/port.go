package child

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
)

// Ports are picked from [firstPort, lastPort), below the kernel's range for outgoing connections, which starts at
// 32768 on Linux and at 49152 elsewhere.
const (
	firstPort = 20000
	lastPort  = 32000
)

// port is a port number that no other Server of this machine takes while it is held.
type port struct {
	number int
	hold   net.Listener // nil where the machine has no abstract sockets
}

// reservePort finds a port that is held by nobody and bound by nobody.
func reservePort(ctx context.Context) (port, error) {
	var listen net.ListenConfig
	var err error
	for range 10 * portAttempts {
		p := port{number: firstPort + rand.IntN(lastPort-firstPort)}
		if runtime.GOOS == "linux" {
			// An abstract socket is a lock between processes that vanishes with its owner. It keeps the port for a
			// server that is down and will be restarted.
			if p.hold, err = listen.Listen(ctx, "unix", fmt.Sprintf("@headgate-redis-port-%d", p.number)); err != nil {
				continue
			}
		}
		var probe net.Listener
		if probe, err = listen.Listen(ctx, "tcp", p.addr()); err != nil {
			p.release()
			continue
		}
		if err = probe.Close(); err != nil {
			p.release()
			continue
		}
		return p, nil
	}
	return port{}, fmt.Errorf("none free in %d-%d: %w", firstPort, lastPort-1, err)
}

func (p port) addr() string { return addrOf(p.number) }

func (p port) release() {
	if p.hold != nil {
		_ = p.hold.Close() // Closing twice is the only way it fails.
	}
}
