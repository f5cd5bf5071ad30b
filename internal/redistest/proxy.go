package redistest

import (
	"bufio"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cut says where a connection ends.
type Cut int

// The places of a cut.
const (
	// CutNone leaves the connection alone.
	CutNone Cut = iota
	// CutBefore ends the connection in place of the command: Redis never sees it.
	CutBefore
	// CutAfter ends the connection in place of the reply: Redis has executed the command.
	CutAfter
)

// Action is what a Proxy does with one command. The zero value forwards it and its reply.
type Action struct {
	// Delay is how long the command, and all behind it on its connection, waits first.
	Delay time.Duration
	// Hold, where it is not nil, is what the command waits for after that: to be closed, or one value.
	Hold <-chan struct{}
	// Late is how long the reply, and all behind it on its connection, is held: Redis has executed the command.
	Late time.Duration
	// Cut is where the connection ends, if it does.
	Cut Cut
	// OnCut is called, where it is not nil, once the cut is certain and before the client can notice it: after Redis
	// has begun to answer, for CutAfter. It may not call the Proxy.
	OnCut func()
}

// Command is one command as the Proxy reads it.
type Command struct {
	// Index counts the commands of all connections from 1, in the order in which they are read. The commands by
	// which a client sets up a connection (HELLO, AUTH, CLIENT, SELECT, READONLY) pass uncounted and unasked.
	Index int
	// Conn counts the connections from 1.
	Conn int
	// Name is the first word in upper case.
	Name string
	// Args are the other words.
	Args []string
}

// IsScript reports whether c calls a script: as a function, by its hash or as a text.
func (c Command) IsScript() bool { return IsScript(c.Name) }

// IsScript is Command.IsScript of a command's name in any case.
func IsScript(name string) bool {
	switch strings.ToUpper(name) {
	case "FCALL", "EVALSHA", "EVAL":
		return true
	}
	return false
}

// Proxy is a TCP proxy before a Redis that ends connections on purpose. It forwards everything until it is told
// otherwise. Its methods may be called from several goroutines at once.
//
// It counts one reply a command, so it does not do for subscriptions, MONITOR or CLIENT REPLY.
type Proxy struct {
	upstream string
	listener net.Listener
	running  sync.WaitGroup // the accept loop and the links
	closed   chan struct{}

	mu struct {
		sync.Mutex
		decide   func(Command) Action // nil forwards; called with mu held
		commands int                  // counted so far
		conns    int                  // accepted so far
		cuts     int                  // made so far
		links    map[*link]struct{}   // those that are open
	}
}

// NewProxy starts a proxy before the Redis at the address. It ends with the test.
func NewProxy(tb testing.TB, upstream string) *Proxy {
	tb.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("start proxy: %v", err)
	}
	p := &Proxy{upstream: upstream, listener: listener, closed: make(chan struct{})}
	p.mu.links = make(map[*link]struct{})
	p.running.Go(p.accept)
	tb.Cleanup(func() {
		close(p.closed)
		_ = listener.Close()
		p.Sever()
		p.running.Wait()
	})
	return p
}

// Addr returns the proxy's own address.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Options returns the client options of the house for a client that goes through the proxy.
func (p *Proxy) Options() *redis.Options { return clientOptions(p.Addr()) }

// Client returns a client of the test's own that goes through the proxy.
func (p *Proxy) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	return newClient(tb, p.Options())
}

// Decide asks f what to do with each command from now on; nil forwards all. The calls do not overlap, and f may
// not call the Proxy.
func (p *Proxy) Decide(f func(Command) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.decide = f
}

// CutEvery cuts at every nth command from now on, beginning with the nth.
func (p *Proxy) CutEvery(n int, cut Cut) {
	left := n
	p.Decide(func(Command) Action {
		if left--; left > 0 {
			return Action{}
		}
		left = n
		return Action{Cut: cut}
	})
}

// Commands returns how many commands were read, those that were cut included.
func (p *Proxy) Commands() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.commands
}

// Cuts returns how many connections an Action has ended. A cut is counted before the client can notice it.
func (p *Proxy) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.cuts
}

// Sever ends all connections at once, wherever they are. New ones are accepted.
func (p *Proxy) Sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.mu.links {
		l.sever()
	}
}

// accept makes a link of each connection until the listener is closed.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

// serve forwards one connection until it ends.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	dialer := net.Dialer{Timeout: time.Second}
	server, err := dialer.DialContext(context.Background(), "tcp", p.upstream)
	if err != nil {
		return // The client's connection ends, as one to a dead server does.
	}
	defer server.Close()
	l := &link{proxy: p, client: client, server: server, fromClient: bufio.NewReader(client), fromServer: bufio.NewReader(server)}
	l.progress = sync.NewCond(&l.mu)
	if l.number = p.add(l); l.number == 0 {
		return
	}
	defer p.remove(l)
	l.run()
}

// add takes note of a link and numbers it; 0 means that the proxy has ended.
func (p *Proxy) add(l *link) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closed:
		return 0
	default:
	}
	p.mu.links[l] = struct{}{}
	p.mu.conns++
	return p.mu.conns
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.links, l)
}

// ask counts a command and returns what to do with it.
func (p *Proxy) ask(command Command) Action {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.commands++
	command.Index = p.mu.commands
	if p.mu.decide == nil {
		return Action{}
	}
	return p.mu.decide(command)
}

// noteCut is called when a cut is certain and before the client sees it.
func (p *Proxy) noteCut(onCut func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.cuts++
	if onCut != nil {
		onCut()
	}
}
