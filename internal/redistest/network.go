package redistest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// Network is every link of a cluster: a TCP proxy stands before each port of each node, which the node announces as its own, and
// nodes and clients meet there alone. It can be cut in two, because each node, and each client that asks for one, connects
// from a loopback address of its own, its host. Its methods may be called from several goroutines at once.
//
// Over a cut link nothing arrives: bytes, and the end of a connection, wait as they would to be sent again, and arrive if it is healed.
// A new connection is made, by the kernel that both ends share, and then hears nothing. Once the cut refuses, connections over it are
// reset, and so are new ones. What is on its way in the moment of a cut may still arrive.
type Network struct {
	closed  chan struct{}
	running sync.WaitGroup // the accept loops and the wires
	places  map[*Server]place

	mu struct {
		sync.Mutex
		apart   map[string]bool // the hosts of one side; nil while the network is whole
		refuses bool
		changed chan struct{} // closed when the above change
		wires   map[*wire]struct{}
	}
}

// place is where a node stands in the network.
type place struct {
	host      string
	addr, bus string // of the proxies before its port and its bus
}

// firstHost is the number of the first node's host, 127.0.0.N.
const firstHost = 10

// ClientHost returns the address of the nth host that is no node's, for DialFrom and Part.
func ClientHost(n int) string { return fmt.Sprintf("127.0.0.%d", 100+n) }

// DialFrom returns the dialer of a client that is at a host.
func DialFrom(host string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	return dialer.DialContext
}

// newNetwork returns a network without nodes, which ends with the test. It needs a loopback interface with more addresses than
// one, which only Linux has by itself.
func newNetwork(tb testing.TB) *Network {
	tb.Helper()
	if runtime.GOOS != "linux" {
		tb.Skip("needs 127.0.0.0/8 on the loopback interface, as Linux has it")
	}
	n := &Network{closed: make(chan struct{}), places: map[*Server]place{}}
	n.mu.changed, n.mu.wires = make(chan struct{}), map[*wire]struct{}{}
	tb.Cleanup(func() {
		close(n.closed)
		n.sever(func(*wire) bool { return true })
		n.running.Wait()
	})
	return n
}

// start runs a node at the next host.
func (n *Network) start(tb testing.TB, options Options) *Server {
	tb.Helper()
	host := fmt.Sprintf("127.0.0.%d", firstHost+len(n.places))
	port, bus := n.listen(tb), n.listen(tb)
	options.Args = append(slices.Clone(options.Args), "--bind-source-addr", host, "--cluster-announce-ip", "127.0.0.1",
		"--cluster-announce-port", portOf(port), "--cluster-announce-bus-port", portOf(bus))
	server := Start(tb, options)
	n.places[server] = place{host: host, addr: port.Addr().String(), bus: bus.Addr().String()}
	n.running.Go(func() { n.accept(port, host, server.Addr()) })
	n.running.Go(func() { n.accept(bus, host, busAddr(tb, server.Addr())) })
	return server
}

func (n *Network) listen(tb testing.TB) net.Listener {
	tb.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("start proxy: %v", err)
	}
	tb.Cleanup(func() { _ = listener.Close() })
	return listener
}

func portOf(listener net.Listener) string {
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

// Host returns the host of a node.
func (n *Network) Host(node *Server) string { return n.places[node].host }

// Part cuts the network in two, silently: the hosts on one side, all others on the other.
func (n *Network) Part(hosts ...string) {
	apart := map[string]bool{}
	for _, host := range hosts {
		apart[host] = true
	}
	n.change(apart, false)
}

// Refuse makes the cut one that refuses.
func (n *Network) Refuse() {
	n.mu.Lock()
	apart := n.mu.apart
	n.mu.Unlock()
	n.change(apart, true)
	n.sever(func(w *wire) bool { return apart[w.from] != apart[w.to] })
}

// Heal makes the network whole.
func (n *Network) Heal() { n.change(nil, false) }

func (n *Network) change(apart map[string]bool, refuses bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.apart, n.mu.refuses = apart, refuses
	close(n.mu.changed)
	n.mu.changed = make(chan struct{})
}

// sever ends connections.
func (n *Network) sever(which func(*wire) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.mu.wires {
		if which(w) {
			w.resetLocked()
		}
	}
}

// await waits until a link is not cut; false means that it refuses, or that the test is over.
func (n *Network) await(from, to string) bool {
	for {
		n.mu.Lock()
		cut, refuses, changed := n.mu.apart[from] != n.mu.apart[to], n.mu.refuses, n.mu.changed
		n.mu.Unlock()
		if !cut || refuses {
			return !cut
		}
		select {
		case <-changed:
		case <-n.closed:
			return false
		}
	}
}

// accept makes a wire of each connection to a port of the node at a host.
func (n *Network) accept(listener net.Listener, host, upstream string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		from, _, _ := net.SplitHostPort(client.RemoteAddr().String())
		w := &wire{network: n, from: from, to: host, client: client}
		n.running.Go(func() { w.run(upstream) })
	}
}

// wire is a connection from one host to a port of another, and its twin to the node itself.
type wire struct {
	network  *Network
	from, to string
	client   net.Conn
	server   net.Conn // nil until the link lets the connection through; guarded by network.mu
}

// run forwards until both sides have ended.
func (w *wire) run(upstream string) {
	w.add(nil)
	defer w.remove()
	if !w.network.await(w.from, w.to) {
		w.sever()
		return
	}
	dialer := net.Dialer{Timeout: time.Second}
	server, err := dialer.DialContext(context.Background(), "tcp", upstream)
	if err != nil {
		return // The client's connection ends, as one to a dead node does.
	}
	w.add(server)
	var back sync.WaitGroup
	back.Go(func() { w.forward(w.client, server) })
	w.forward(server, w.client)
	back.Wait()
}

// forward brings to one side what the other says, and that it has ended, when the link lets it through.
func (w *wire) forward(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		size, ended := from.Read(buffer)
		if !w.network.await(w.from, w.to) {
			w.sever()
			return
		}
		if _, err := to.Write(buffer[:size]); err != nil {
			w.sever()
			return
		}
		if ended == nil {
			continue
		}
		if tcp, ok := to.(*net.TCPConn); ok && errors.Is(ended, io.EOF) {
			_ = tcp.CloseWrite()
		} else {
			w.sever()
		}
		return
	}
}

// add takes note of the wire, with its twin if it has one by now.
func (w *wire) add(server net.Conn) {
	w.network.mu.Lock()
	defer w.network.mu.Unlock()
	w.server = server
	w.network.mu.wires[w] = struct{}{}
	select {
	case <-w.network.closed:
		w.resetLocked()
	default:
	}
}

// remove closes what both sides have ended.
func (w *wire) remove() {
	w.network.mu.Lock()
	defer w.network.mu.Unlock()
	delete(w.network.mu.wires, w)
	_ = w.client.Close()
	if w.server != nil {
		_ = w.server.Close()
	}
}

// sever resets both connections.
func (w *wire) sever() {
	w.network.mu.Lock()
	defer w.network.mu.Unlock()
	w.resetLocked()
}

func (w *wire) resetLocked() {
	for _, conn := range []net.Conn{w.client, w.server} {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
			_ = tcp.Close()
		}
	}
}
