package unary

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// connWindow is what messages of a connection may hold together, streamWindow what one may, with its padding.
	connWindow, streamWindow = 1 << 20, 128 << 10
	// firstWindow is both where nobody says otherwise, RFC 9113, 6.9.2.
	firstWindow = 65_535
	// maxUnwritten is what a client may leave unread.
	maxUnwritten = 1 << 20
	keptBuffer   = 64 << 10 // is as large as one that is used again
	frameBytes   = 16 << 10
	frameHeader  = 9
	prefixBytes  = 5 // of a message
	// leaveAfter is how long calls still come after a client was told that it may make no more.
	leaveAfter = 100 * time.Millisecond
)

// conn is a connection.
type conn struct {
	server *Server
	net    net.Conn
	in     *bufio.Reader
	ctx    context.Context //nolint:containedctx // It is that of all calls.
	cancel context.CancelFunc
	wake   chan struct{} // holds a token when there is something to write
	framer *http2.Framer // reads without mu, writes with it
	calls  sync.WaitGroup
	// heard is when something came last, looked when it was last looked after what has begun, both of the goroutine that reads.
	heard, looked time.Time

	mu sync.Mutex
	// ready are frames that are to be written, spare is the buffer of those before; fields encodes theirs to block.
	ready, spare []byte
	fields       *hpack.Encoder
	block        []byte
	streams      map[uint32]*stream
	blocked      []*stream // whose answers wait for the client's window, in order
	// last is the greatest id of a stream, most the greatest that is answered: none beyond once the connection ends.
	last, most uint32
	// running are calls whose handler runs, partial those whose message has not come as a whole.
	running, partial int
	// received is what the client may still send, handled what is to be given back to it; window what it lets us send, firstOf that of a new stream.
	received, handled, window, firstOf int64
	maxFrame                           int
	// greeted says that the preface was read, settled that the client's settings were, within that the read under way is of a frame that has begun.
	greeted, settled, within, leaving, closed bool
}

// stream is a call.
type stream struct {
	id     uint32
	method string
	began  time.Time // of its message, or of its wait for a window
	body   []byte
	cancel context.CancelFunc
	// got is what came with its frames, whole that nothing more comes, running that its handler does.
	got            int64
	whole, running bool
	window         int64
	answer         []byte // what of it waits for the window
}

func newConn(s *Server, client net.Conn) *conn {
	c := &conn{
		server: s, net: client, in: bufio.NewReaderSize(client, frameBytes), wake: make(chan struct{}, 1), streams: map[uint32]*stream{},
		most: math.MaxInt32, received: connWindow, window: firstWindow, firstOf: firstWindow, maxFrame: frameBytes,
	}
	c.ctx, c.cancel = context.WithCancel(context.Background()) //nolint:forbidigo // A listener gives its connections none.
	c.framer = http2.NewFramer(writerFunc(func(p []byte) (int, error) {
		c.ready = append(c.ready, p...)
		return len(p), nil
	}), c.in)
	c.fields = hpack.NewEncoder(writerFunc(func(p []byte) (int, error) {
		c.block = append(c.block, p...)
		return len(p), nil
	}))
	c.framer.ReadMetaHeaders, c.framer.MaxHeaderListSize = hpack.NewDecoder(4096, nil), s.MaxMetadata
	c.framer.SetMaxReadFrameSize(frameBytes)
	c.framer.SetReuseFrames()
	return c
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// serve reads until the connection ends.
func (c *conn) serve() {
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.flush()
	}()
	err := c.greet()
	for err == nil {
		err = c.next()
	}
	if broken, ok := errors.AsType[http2.ConnectionError](err); ok {
		c.locked(func() { c.goAway(http2.ErrCode(broken)) })
	}
	c.close()
	_ = c.net.SetWriteDeadline(time.Now().Add(leaveAfter)) // Of a write under way, which the client may not read.
	<-written
	_ = c.net.SetReadDeadline(time.Now().Add(leaveAfter)) // A client that still writes would have lost what it was told last.
	_, _ = io.Copy(io.Discard, c.net)
	_ = c.net.Close()
	c.calls.Wait()
}

// locked does something with what the connection knows, and has written what came of it.
func (c *conn) locked(do func()) {
	c.mu.Lock()
	do()
	some := len(c.ready) > 0
	c.mu.Unlock()
	if some {
		c.signal()
	}
}

func (c *conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// flush writes what is ready until the connection is closed, and then what is left.
func (c *conn) flush() {
	for closed := false; !closed; {
		<-c.wake
		runtime.Gosched() // Calls that are about to be answered go with this write.
		c.mu.Lock()
		out := c.ready
		c.ready, c.spare, closed = c.spare[:0], nil, c.closed
		c.mu.Unlock()
		if len(out) == 0 {
			continue
		}
		err := c.net.SetWriteDeadline(time.Now().Add(2 * c.server.Timeout))
		if err == nil {
			_, err = c.net.Write(out)
		}
		if cap(out) <= keptBuffer {
			c.mu.Lock()
			c.spare = out
			c.mu.Unlock()
		}
		if err != nil {
			c.close()
			_ = c.net.Close() // Who reads hears of it.
			return
		}
	}
}

// close ends the connection and its calls.
func (c *conn) close() { c.locked(c.end) }

func (c *conn) end() {
	if !c.closed {
		c.closed = true
		c.cancel()
		_ = c.net.SetReadDeadline(time.Unix(1, 0)) // Of a read under way, or a handshake.
		c.signal()
	}
}

// leave ends the connection once its calls are answered. The client is told twice, RFC 9113, 6.8: that it is to make no more, and, when those that were
// on their way have come, which was the last.
func (c *conn) leave() {
	c.locked(func() {
		if c.leaving || c.closed {
			return
		}
		if c.leaving = true; !c.greeted { // It has made no call.
			c.end()
			return
		}
		_ = c.framer.WriteGoAway(math.MaxInt32, http2.ErrCodeNo, nil) // To memory.
		time.AfterFunc(leaveAfter, func() {
			c.locked(func() {
				c.most = c.last
				c.goAway(http2.ErrCodeNo)
				c.leftIfDone()
			})
		})
	})
}

// leftIfDone ends a connection that is to end when nothing is under way: the client ends it then, or a time-out.
func (c *conn) leftIfDone() {
	if c.isDone() {
		_ = c.net.SetReadDeadline(time.Now().Add(leaveAfter))
	}
}

func (c *conn) goAway(code http2.ErrCode) { _ = c.framer.WriteGoAway(min(c.last, c.most), code, nil) }

// greet is the beginning, RFC 9113, 3.4.
func (c *conn) greet() error {
	c.heard = time.Now()
	if err := c.net.SetDeadline(time.Now().Add(c.server.Timeout)); err != nil {
		return err
	}
	if err := handshake(c.ctx, c.net); err != nil {
		return err
	}
	preface, err := c.in.Peek(len(http2.ClientPreface))
	if string(preface) != http2.ClientPreface {
		if line, _, _ := strings.Cut(string(preface), "\r\n"); strings.Contains(line, " /") { // HTTP/1's
			_, _ = io.WriteString(c.net, "HTTP/1.1 415 Unsupported Media Type\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 17\r\n\r\nthis speaks gRPC\n")
		}
		return errors.Join(errors.New("the client speaks no HTTP/2"), err)
	}
	_, _ = c.in.Discard(len(preface))
	c.locked(func() {
		c.greeted = true
		_ = c.framer.WriteSettings(
			http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(c.server.MaxCalls)}, //nolint:gosec // few
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow},
			http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: c.server.MaxMetadata})
		_ = c.framer.WriteWindowUpdate(0, connWindow-firstWindow)
	})
	return nil
}

// next reads a frame and heeds it.
func (c *conn) next() error {
	if err := c.await(); err != nil {
		return err
	}
	frame, err := c.framer.ReadFrame()
	if bad, ok := errors.AsType[http2.StreamError](err); ok {
		c.locked(func() {
			if bad.StreamID%2 == 1 {
				c.last = max(c.last, bad.StreamID) // What still comes of it is passed over.
			}
			c.reset(bad.StreamID, bad.Code)
		})
		return nil
	}
	if errors.Is(err, http2.ErrFrameTooLarge) {
		return http2.ConnectionError(http2.ErrCodeFrameSize)
	}
	if err == nil {
		c.locked(func() { err = c.heed(frame) })
	}
	return err
}

var errSilent = errors.New("the client is silent")

// await waits for the begin of a frame, and bounds how long the rest of it takes.
func (c *conn) await() error {
	for c.in.Buffered() == 0 {
		if err := c.until(c.heard, 0); err != nil {
			return err
		}
		_, err := c.in.Peek(1)
		if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
			if err := c.late(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		c.heard = time.Now()
	}
	if c.heard.Sub(c.looked) >= c.look() { // While a client goes on to send, no read is late.
		c.looked = c.heard
		c.locked(c.giveUp)
	}
	if head, _ := c.in.Peek(min(c.in.Buffered(), frameHeader)); len(head) == frameHeader {
		rest := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		ends := http2.FrameType(head[3]) != http2.FrameHeaders || http2.Flags(head[4]).Has(http2.FlagHeadersEndHeaders)
		if ends && c.in.Buffered() >= frameHeader+rest {
			return nil
		}
	}
	c.heard = time.Now() // The end of the frame before came with the begin of this one, perhaps.
	return c.until(c.heard, c.server.Timeout)
}

// until bounds a read by a time after something was heard, zero for as long as nothing may come: what has begun is looked after each second. Of a
// connection that ends the time is set.
func (c *conn) until(heard time.Time, wait time.Duration) (err error) {
	c.locked(func() {
		c.within = wait > 0
		switch {
		case c.closed:
			err = net.ErrClosed
		case c.isDone():
		case wait == 0 && (c.partial > 0 || len(c.blocked) > 0):
			err = c.net.SetReadDeadline(time.Now().Add(c.look()))
		case wait == 0 && len(c.streams)+c.running > 0:
			err = c.net.SetReadDeadline(time.Now().Add(c.server.Idle))
		default:
			err = c.net.SetReadDeadline(heard.Add(cmp.Or(wait, c.server.Idle)))
		}
	})
	return err
}

// look is how often it is looked after what has begun.
func (c *conn) look() time.Duration { return min(time.Second, c.server.Timeout) }

// isDone says that nothing is under way on a connection that is to end.
func (c *conn) isDone() bool {
	return c.most < math.MaxInt32 && c.running == 0 && len(c.streams) == 0
}

// late ends what has taken too long.
func (c *conn) late() (err error) {
	c.locked(func() {
		switch {
		case c.closed, c.isDone():
			err = errSilent
		case c.running == 0 && len(c.streams) == 0 && time.Since(c.heard) >= c.server.Idle:
			c.goAway(http2.ErrCodeNo)
			err = errSilent
		}
		c.giveUp()
	})
	return err
}

// giveUp ends the calls whose message, or whose wait for a window, has taken too long.
func (c *conn) giveUp() {
	for id, s := range c.streams {
		if (!s.whole || s.answer != nil) && time.Since(s.began) > c.server.Timeout {
			c.reset(id, http2.ErrCodeCancel)
		}
	}
	c.resume() // Without those.
}
