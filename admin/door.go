package admin

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/headgate/headgate/admin/internal/gauge"
	"github.com/headgate/headgate/internal/guard"
)

// door is a listener that bounds its connections: in all, of one network, and of one tenant. Addresses that may not call are turned
// away here, before they cost a handshake. When there are too many, the connection that has been idle longest without ever having
// shown a credential makes room.
//
//	accept ──▶ stranger, idle ◀──▶ active
//	               │                 │ a credential
//	               │ makes room      ▼
//	               └────────▶     known: stays as long as it likes
type door struct {
	net.Listener

	most, ofNetwork, ofTenant int
	// allowed says which addresses may call; refused is told of each connection that was turned away or closed, by cause.
	allowed func(netip.Addr) bool
	refused func(cause string)
	// full is how long the next connection waits in the backlog where all places are taken, and closed ends that.
	full   time.Duration
	closed chan struct{}
	once   sync.Once
	mu     struct {
		sync.Mutex

		open int
		// came and away count since the start those that came in, and those that were turned away or closed for others.
		came, away int64
		networks   map[string]int
		tenants    map[string]int
		// idle are the strangers that nobody waits for, *guest, the longest idle first.
		idle *list.List
	}
}

// guest is a connection. What is below door belongs to the door's lock.
type guest struct {
	net.Conn

	door    *door
	network string
	idle    *list.Element
	known   bool
	tenant  string
	gone    bool
}

func newDoor(inner net.Listener, most, ofNetwork, ofTenant int) *door {
	d := &door{Listener: inner, most: most, ofNetwork: ofNetwork, ofTenant: ofTenant, closed: make(chan struct{})}
	d.mu.networks, d.mu.tenants, d.mu.idle = map[string]int{}, map[string]int{}, list.New()
	return d
}

// Accept waits for a connection that is let in.
func (d *door) Accept() (net.Conn, error) {
	for {
		connection, err := d.Listener.Accept()
		switch {
		case (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)) && d.makeRoom(""):
			continue
		case err != nil:
			return nil, err
		}
		if g := d.admit(connection); g != nil {
			return g, nil
		}
		full := d.connections() >= d.most
		_ = connection.Close()
		if full {
			d.pause()
		}
	}
}

// pause leaves the connections of the backlog there for a while: where there is no place none of them could be let in, and to accept and close
// one after the other as fast as they come is a busy loop.
func (d *door) pause() {
	wait := time.NewTimer(guard.Jittered(d.full))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-d.closed:
	}
}

// Close ends the listener.
func (d *door) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Listener.Close()
}

// admit returns the connection as a guest, nil if it is turned away.
func (d *door) admit(connection net.Conn) *guest {
	from, ok := address(connection.RemoteAddr().String())
	if !ok || !d.allowed(from) {
		d.turn("address")
		return nil
	}
	network := networkOf(from)
	for {
		g, full := d.enter(connection, network)
		switch {
		case g != nil:
			return g
		case !d.makeRoom(full):
			d.turn(cause(full))
			return nil
		}
	}
}

// cause says in the metrics what there was no room for.
func cause(full string) string {
	if full != "" {
		return "network"
	}
	return "connections"
}

// enter returns the guest, or of which network there are too many connections; "" is all.
func (d *door) enter(connection net.Conn, network string) (g *guest, full string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.mu.networks[network] >= d.ofNetwork:
		return nil, network
	case d.mu.open >= d.most:
		return nil, ""
	}
	g = &guest{Conn: connection, door: d, network: network}
	d.mu.open++
	d.mu.came++
	d.mu.networks[network]++
	g.idle = d.mu.idle.PushBack(g)
	return g, ""
}

// connections returns how many are open.
func (d *door) connections() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.open
}

// told returns what there is to tell of the connections.
func (d *door) told() gauge.Connections {
	d.mu.Lock()
	defer d.mu.Unlock()
	return gauge.Connections{Total: d.mu.came, Active: d.mu.open, Stale: d.mu.idle.Len(), TurnedAway: d.mu.away}
}

// turn counts a connection that is turned away or closed for another, and tells of it.
func (d *door) turn(cause string) {
	d.mu.Lock()
	d.mu.away++
	d.mu.Unlock()
	d.refused(cause)
}

// makeRoom closes the stranger that has been idle longest, of a network or of all, and reports whether there was one.
func (d *door) makeRoom(network string) bool {
	d.mu.Lock()
	var oldest *guest
	for e := d.mu.idle.Front(); e != nil && oldest == nil; e = e.Next() {
		if g, _ := e.Value.(*guest); network == "" || g.network == network {
			oldest = g
		}
	}
	d.mu.Unlock()
	if oldest == nil {
		return false
	}
	d.turn("idle")
	_ = oldest.Close()
	return true
}

// Close ends the connection and makes its place free.
func (g *guest) Close() error {
	d := g.door
	d.mu.Lock()
	if !g.gone {
		g.gone = true
		g.activeLocked()
		d.mu.open--
		countDown(d.mu.networks, g.network)
		if g.tenant != "" {
			countDown(d.mu.tenants, g.tenant)
		}
	}
	d.mu.Unlock()
	return g.Conn.Close()
}

func countDown(counts map[string]int, name string) {
	if counts[name]--; counts[name] == 0 {
		delete(counts, name)
	}
}

func (g *guest) activeLocked() {
	if g.idle != nil {
		g.door.mu.idle.Remove(g.idle)
		g.idle = nil
	}
}

// changed notes that a connection has become idle or active; it is a http.Server's ConnState.
func (d *door) changed(connection net.Conn, state http.ConnState) {
	g := guestOf(connection)
	if g == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case state == http.StateActive:
		g.activeLocked()
	case state == http.StateIdle && !g.known && !g.gone && g.idle == nil:
		g.idle = d.mu.idle.PushBack(g)
	}
}

// knows notes that a connection has shown a credential, of a tenant or of the deployment, for which it is "", and reports whether
// the tenant may have so many.
func (g *guest) knows(tenant string) bool {
	g.door.mu.Lock()
	defer g.door.mu.Unlock()
	if !g.known && !g.gone && tenant != "" {
		g.tenant = tenant
		g.door.mu.tenants[tenant]++
	}
	g.known = true
	return g.tenant == "" || g.door.mu.tenants[g.tenant] <= g.door.ofTenant
}

// guestOf returns the guest that a connection is, or has below its TLS.
func guestOf(connection net.Conn) *guest {
	if secure, ok := connection.(*tls.Conn); ok {
		connection = secure.NetConn()
	}
	g, _ := connection.(*guest)
	return g
}

type guestKey struct{}

// withGuest is a http.Server's ConnContext.
func withGuest(ctx context.Context, connection net.Conn) context.Context {
	return context.WithValue(ctx, guestKey{}, guestOf(connection))
}

// guestIn returns the connection of a call, nil where a server of the program's own has taken it.
func guestIn(ctx context.Context) *guest {
	g, _ := ctx.Value(guestKey{}).(*guest)
	return g
}
