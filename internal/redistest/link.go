package redistest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// hangUpTimeout bounds how long a cut waits for the client to notice.
const hangUpTimeout = time.Second

// link is one client's connection and its twin to Redis. One goroutine reads commands, one reads replies:
//
//	client ──requests()──▶ server      counts what it forwards in sent
//	client ◀──replies()─── server      counts what it delivers in delivered, in the same order
type link struct {
	proxy          *Proxy
	number         int
	client, server net.Conn
	fromClient     *bufio.Reader // read by requests
	fromServer     *bufio.Reader // read by replies

	mu        sync.Mutex
	progress  *sync.Cond // on mu: delivered or over has changed
	sent      int        // commands forwarded; guarded by mu
	delivered int        // replies delivered; guarded by mu
	dropAt    int        // the number of the reply to drop, 0 for none; guarded by mu
	onDrop    func()     // what to call then, or nil; guarded by mu
	over      bool       // replies has returned; guarded by mu

	late map[int]time.Duration // for how long replies are held, by their number; guarded by mu
}

// run forwards until either side ends or an Action cuts.
func (l *link) run() {
	var reading sync.WaitGroup
	reading.Go(l.replies)
	if errors.Is(l.requests(), io.EOF) {
		l.endRequests()
	} else {
		_ = l.server.Close() // Ends replies, if it has not ended by itself.
	}
	reading.Wait()
	l.hangUp()
}

// sever ends both connections from outside.
func (l *link) sever() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// endRequests tells the server that the client sends no more. It may still answer, and then ends the connection.
func (l *link) endRequests() {
	if tcp, ok := l.server.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
	_ = l.server.SetReadDeadline(time.Now().Add(hangUpTimeout))
}

// hangUp ends the client's connection so that it first reads what was delivered. Closing a socket that holds
// unread bytes would reset the connection and could take delivered replies with it, so those bytes are read.
func (l *link) hangUp() {
	if tcp, ok := l.client.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
	_ = l.client.SetReadDeadline(time.Now().Add(hangUpTimeout))
	_, _ = io.Copy(io.Discard, l.client)
}

// errCut ends requests after a cut.
var errCut = errors.New("cut")

// requests forwards commands. It returns when no more are to be forwarded: with io.EOF if the client wants no
// more, with another error if the connection is to end.
func (l *link) requests() error {
	out := bufio.NewWriter(l.server)
	for {
		if l.fromClient.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return errCut
			}
		}
		words, raw, err := readCommand(l.fromClient)
		if err != nil {
			return errors.Join(err, out.Flush())
		}
		action := Action{}
		if name := commandName(words); !setsUpConnection(name) {
			action = l.proxy.ask(Command{Conn: l.number, Name: name, Args: words[1:]})
		}
		if action.Delay > 0 && (out.Flush() != nil || !l.pause(action.Delay)) {
			return errCut
		}
		if action.Hold != nil && (out.Flush() != nil || !l.hold(action.Hold)) {
			return errCut
		}
		if err := l.forward(out, raw, action); err != nil {
			return err
		}
	}
}

// hold waits for a command to be let go; false when the proxy has ended.
func (l *link) hold(until <-chan struct{}) bool {
	select {
	case <-until:
		return true
	case <-l.proxy.closed:
		return false
	}
}

// forward writes one command, or cuts.
func (l *link) forward(out *bufio.Writer, raw []byte, action Action) error {
	if action.Cut == CutBefore {
		// What was forwarded is answered first, so that this command alone is in doubt.
		if out.Flush() == nil && l.awaitReplies() {
			l.proxy.noteCut(action.OnCut)
		}
		return errCut
	}
	l.send(action)
	if _, err := out.Write(raw); err != nil {
		return errCut
	}
	if action.Cut != CutAfter {
		return nil
	}
	if out.Flush() == nil {
		l.awaitReplies() // The reply to drop never counts as delivered: this waits until replies returns.
	}
	return errCut
}

// send counts a command that is on its way to the server.
func (l *link) send(action Action) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	if action.Late > 0 {
		if l.late == nil {
			l.late = map[int]time.Duration{}
		}
		l.late[l.sent] = action.Late
	}
	if action.Cut == CutAfter {
		l.dropAt, l.onDrop = l.sent, action.OnCut
	}
}

// replies forwards replies. It returns when the server ends the connection or the reply to drop arrives. What it
// has read by then reaches the client.
func (l *link) replies() {
	defer l.end()
	out := bufio.NewWriter(l.client)
	defer out.Flush()
	for {
		if l.fromServer.Buffered() == 0 && out.Flush() != nil {
			return
		}
		first, err := l.fromServer.Peek(1)
		if err != nil {
			return
		}
		answers := first[0] != pushType // A push answers no command.
		if drop, onDrop := l.isToDrop(); answers && drop {
			l.proxy.noteCut(onDrop)
			return
		}
		if late := l.isLate(); answers && late > 0 && (out.Flush() != nil || !l.pause(late)) {
			return
		}
		if err := copyReply(out, l.fromServer); err != nil {
			return
		}
		if answers {
			l.deliver()
		}
	}
}

// deliver counts a reply that is on its way to the client.
func (l *link) deliver() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delivered++
	l.progress.Broadcast()
}

// isToDrop says whether the reply that begins to arrive is the one to drop, and what is to be called then.
func (l *link) isToDrop() (drop bool, onDrop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropAt != 0 && l.delivered+1 == l.dropAt, l.onDrop
}

// isLate returns for how long the reply that begins to arrive is held.
func (l *link) isLate() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.late[l.delivered+1]
}

// end notes that no more replies come, and wakes requests out of whatever it waits for.
func (l *link) end() {
	l.mu.Lock()
	l.over = true
	l.progress.Broadcast()
	l.mu.Unlock()
	_ = l.client.SetReadDeadline(time.Now())
}

// awaitReplies waits until all that was forwarded is answered and delivered. It says false when that will not be.
func (l *link) awaitReplies() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.delivered < l.sent && !l.over {
		l.progress.Wait()
	}
	return l.delivered == l.sent
}

// pause waits for d; it says false when the proxy ends first.
func (l *link) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.proxy.closed:
		return false
	}
}
