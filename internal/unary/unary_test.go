package unary

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// echo answers by the message itself. The method /a/Wait waits until its call or the test is over, /a/Hold heeds the latter alone, /a/Panic panics, /a/Long has an answer of 100,000 bytes.
type echo struct {
	running, most, given atomic.Int64
	release              chan struct{}
}

func (*echo) Knows(method string) bool { return strings.HasPrefix(method, "/a/") }

func (e *echo) Answer(ctx context.Context, method string, message []byte) ([]byte, error) {
	n := e.running.Add(1)
	defer e.running.Add(-1)
	for most := e.most.Load(); n > most && !e.most.CompareAndSwap(most, n); most = e.most.Load() {
	}
	switch method {
	case "/a/Wait":
		select {
		case <-ctx.Done():
			e.given.Add(1)
			return nil, ctx.Err()
		case <-e.release:
		}
	case "/a/Hold":
		<-e.release
	case "/a/Panic":
		panic("on purpose")
	case "/a/Long":
		return bytes.Repeat([]byte{7}, 100_000), nil
	case "/a/Status":
		return nil, &Status{NotFound, "not here: é"}
	case "/a/Error":
		return nil, errors.New("a secret of the server")
	}
	return message, nil
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// start serves an echo, changed, and returns its address.
func start(tb testing.TB, change func(s *Server)) (s *Server, e *echo, address string) {
	tb.Helper()
	e = &echo{release: make(chan struct{})}
	s = &Server{Handler: e, MaxMessage: 64 << 10, MaxMetadata: 4 << 10, MaxCalls: 100, Timeout: 10 * time.Second, Idle: time.Minute, OnDenied: func() {}, OnPanic: func(any, []byte) {}}
	if change != nil {
		change(s)
	}
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	must(tb, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	tb.Cleanup(func() {
		s.Close()
		if err := <-ended; !errors.Is(err, ErrEnded) {
			tb.Error(err)
		}
		if n := e.running.Load(); n != 0 {
			tb.Errorf("%d calls run on", n)
		}
	})
	return s, e, listener.Addr().String()
}

func TestCallsAreAnsweredByMessagesAndCodes(t *testing.T) {
	t.Parallel()
	var panicked, denied atomic.Int64
	_, _, address := start(t, func(s *Server) {
		s.OnPanic = func(problem any, stack []byte) {
			if problem == "on purpose" && bytes.Contains(stack, []byte("Answer")) {
				panicked.Add(1)
			}
		}
		s.OnDenied = func() { denied.Add(1) }
	})
	c := dial(t, address)
	id := uint32(1)
	for _, row := range []struct{ method, message, body, status, text string }{
		{"/a/Echo", "hello", "hello", "0", ""},
		{"/a/Echo", "", "", "0", ""},
		{"/a/Status", "x", "", "5", "not%20here:%20%C3%A9"},
		{"/a/Error", "x", "", "14", "not%20decided"},
		{"/a/Panic", "x", "", "13", "the%20call%20has%20failed"},
		{"/b/Echo", "x", "", "12", "there%20is%20no%20such%20method"},
		{"/a/Echo", strings.Repeat("x", 64<<10), strings.Repeat("x", 64<<10), "0", ""},
	} {
		if len(row.message) > 16<<10 { // In frames, with room for the answer.
			must(t, c.framer.WriteWindowUpdate(0, 1<<20))
			c.open(id, row.method, false)
			must(t, c.framer.WriteWindowUpdate(id, 1<<20))
			for rest := framed(row.message); len(rest) > 0; {
				n := min(16<<10, len(rest))
				must(t, c.framer.WriteDataPadded(id, n == len(rest), rest[:n-100*(n>>14)], nil))
				rest = rest[n-100*(n>>14):]
			}
		} else {
			c.call(id, row.method, row.message)
		}
		o := c.outcome(id)
		if o.status != row.status || o.text != row.text || o.http == "" && o.status == "" || o.status == "0" && !bytes.Equal(o.body, framed(row.body)) {
			t.Errorf("%s of %d bytes: %+v", row.method, len(row.message), o)
		}
		id += 2
	}
	if panicked.Load() != 1 || denied.Load() != 1 {
		t.Errorf("%d panics were told, and %d denied calls", panicked.Load(), denied.Load())
	}
}

func TestWhatIsNoCallIsRefused(t *testing.T) {
	t.Parallel()
	_, _, address := start(t, nil)
	for name, row := range map[string]struct {
		send func(c *client)
		want string
	}{
		"a GET":         {func(c *client) { c.get(1) }, ""},
		"gRPC-Web":      {func(c *client) { c.open(1, "/a/Echo", true, "content-type", "application/grpc-web") }, ""},
		"no message":    {func(c *client) { c.open(1, "/a/Echo", true) }, "3"},
		"half a prefix": {func(c *client) { c.open(1, "/a/Echo", false); must(t, c.framer.WriteData(1, true, []byte{0, 0})) }, "3"},
		"half a message": {func(c *client) {
			c.open(1, "/a/Echo", false)
			must(t, c.framer.WriteData(1, true, framed("hello")[:7]))
		}, "3"},
		"two messages": {func(c *client) {
			c.open(1, "/a/Echo", false)
			must(t, c.framer.WriteData(1, true, append(framed("a"), framed("b")...)))
		}, "3"},
		"a compressed one": {func(c *client) {
			c.open(1, "/a/Echo", false)
			must(t, c.framer.WriteData(1, false, []byte{1, 0, 0, 0, 1}))
		}, "12"},
		"one that is large": {func(c *client) {
			c.open(1, "/a/Echo", false)
			must(t, c.framer.WriteData(1, false, []byte{0, 0, 1, 0, 1}))
		}, "8"},
		"much metadata": {func(c *client) {
			c.open(1, "/a/Echo", false, "x", strings.Repeat("x", 2000), "y", strings.Repeat("y", 2000), "z", strings.Repeat("z", 2000))
		}, "8"},
		"trailers of its own": {func(c *client) {
			c.open(1, "/a/Echo", false)
			must(t, c.framer.WriteData(1, false, framed("hello")))
			c.trailers(1)
		}, "0"},
	} {
		c := dial(t, address)
		row.send(c)
		o := c.outcome(1)
		if want := map[bool]string{true: "415", false: "200"}[row.want == ""]; o.status != row.want || o.http != want {
			t.Errorf("%s: %+v", name, o)
		}
		c.call(3, "/a/Echo", "still")
		if o := c.outcome(3); o.status != "0" {
			t.Errorf("after %s: %+v", name, o)
		}
	}
}

// TestMalformedRequestsAreReset, RFC 9113, 8.2.2 and 8.3.1, and cost the others of their connection nothing.
func TestMalformedRequestsAreReset(t *testing.T) {
	t.Parallel()
	_, _, address := start(t, nil)
	c := dial(t, address)
	for i, pair := range [][2]string{
		{"connection", "close"},
		{"proxy-connection", "close"},
		{"keep-alive", "1"},
		{"transfer-encoding", "chunked"},
		{"upgrade", "h2c"},
		{"te", "gzip"},
		{":method", ""},
		{":scheme", ""},
		{":path", ""},
	} {
		id := uint32(4*i + 1) //nolint:gosec // small
		c.open(id, "/a/Echo", true, pair[0], pair[1])
		if o := c.outcome(id); !o.reset || o.code != http2.ErrCodeProtocol {
			t.Errorf("%s of %q: %+v", pair[0], pair[1], o)
		}
		c.call(id+2, "/a/Echo", "still")
		if o := c.outcome(id + 2); o.status != "0" {
			t.Errorf("after %s of %q: %+v", pair[0], pair[1], o)
		}
	}
}

func (c *client) trailers(id uint32) {
	c.tb.Helper()
	c.block.Reset()
	must(c.tb, c.fields.WriteField(hpack.HeaderField{Name: "x-sum", Value: "1"}))
	must(c.tb, c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block.Bytes(), EndHeaders: true, EndStream: true}))
}

// TestWhoeverBreaksTheProtocolLosesTheConnection, and is told why.
func TestWhoeverBreaksTheProtocolLosesTheConnection(t *testing.T) {
	t.Parallel()
	_, _, address := start(t, nil)
	for name, row := range map[string]struct {
		send func(c *client) error
		want http2.ErrCode
	}{
		"an even stream":        {func(c *client) error { c.open(2, "/a/Echo", true); return nil }, http2.ErrCodeProtocol},
		"a stream twice":        {func(c *client) error { c.call(3, "/a/Wait", ""); c.open(1, "/a/Echo", true); return nil }, http2.ErrCodeProtocol},
		"headers in the middle": {func(c *client) error { c.open(1, "/a/Echo", false); c.open(1, "/a/Echo", false); return nil }, http2.ErrCodeProtocol},
		"data of no stream":     {func(c *client) error { return c.framer.WriteData(5, false, []byte("x")) }, http2.ErrCodeProtocol},
		"data after the end":    {func(c *client) error { c.call(1, "/a/Wait", ""); return c.framer.WriteData(1, false, []byte("x")) }, http2.ErrCodeProtocol},
		"the end of no stream":  {func(c *client) error { return c.framer.WriteRSTStream(7, http2.ErrCodeCancel) }, http2.ErrCodeProtocol},
		"a window of no stream": {func(c *client) error { return c.framer.WriteWindowUpdate(7, 1) }, http2.ErrCodeProtocol},
		"a window of 2 GiB":     {func(c *client) error { return c.framer.WriteWindowUpdate(0, 1<<31-1) }, http2.ErrCodeFlowControl},
		"a first window too big": {func(c *client) error {
			return c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31})
		}, http2.ErrCodeFlowControl},
		"a large frame": {func(c *client) error { return c.framer.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 17<<10)) }, http2.ErrCodeFrameSize},
		"a promise": {func(c *client) error {
			return c.framer.WriteRawFrame(http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, 1, []byte{0, 0, 0, 2, 0x82})
		}, http2.ErrCodeProtocol},
		"a field too large": {func(c *client) error { c.open(1, "/a/Echo", false, "x", strings.Repeat("x", 9000)); return nil }, http2.ErrCodeCompression},
		"fields that are none": {func(c *client) error {
			return c.framer.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		}, http2.ErrCodeCompression},
	} {
		c := dial(t, address)
		must(t, row.send(c))
		if o := c.outcome(99); !o.goAway || o.code != row.want {
			t.Errorf("%s: %+v, want %v", name, o, row.want)
		}
		ends(c)
	}
}

// ends waits until the connection has ended, or the deadline of a minute would.
func ends(c *client) {
	for {
		if _, err := c.framer.ReadFrame(); err != nil {
			return
		}
	}
}

// TestSettingsComeFirst, RFC 9113, 3.4.
func TestSettingsComeFirst(t *testing.T) {
	t.Parallel()
	_, _, address := start(t, nil)
	c := connect(t, address)
	c.call(1, "/a/Echo", "x")
	if o := c.outcome(1); !o.goAway || o.code != http2.ErrCodeProtocol {
		t.Errorf("a call before the settings: %+v", o)
	}
	ends(c)
}

// TestShutdownAnswersWhatHasBegun, and tells the client which call was the last.
func TestShutdownAnswersWhatHasBegun(t *testing.T) {
	t.Parallel()
	s, e, address := start(t, nil)
	c, idle := dial(t, address), dial(t, address)
	for id := uint32(1); id <= 9; id += 2 {
		c.call(id, "/a/Wait", "held")
	}
	idle.call(1, "/a/Echo", "x")
	idle.outcome(1)
	for e.running.Load() < 5 {
		time.Sleep(time.Millisecond) //nolint:forbidigo // It is soon.
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(t.Context()) }()
	if o := c.outcome(1); !o.goAway || o.lastOfTheGoing != 1<<31-1 {
		t.Errorf("first it is told %+v", o)
	}
	c.call(11, "/a/Wait", "on its way") // Before the second word.
	if o := c.outcome(1); !o.goAway || o.lastOfTheGoing != 11 {
		t.Errorf("then it is told %+v", o)
	}
	c.call(13, "/a/Wait", "too late")
	select {
	case err := <-ended:
		t.Errorf("it has ended with calls under way: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	close(e.release)
	for left := 6; left > 0; { // In any order.
		f, ok := c.read().(*http2.MetaHeadersFrame)
		if !ok || !f.StreamEnded() {
			continue
		}
		if left--; f.StreamID > 11 {
			t.Errorf("call %d was answered", f.StreamID)
		}
	}
	must(t, <-ended)
	if _, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address); err == nil {
		t.Error("it still listens")
	}
}

func TestShutdownIsBounded(t *testing.T) {
	t.Parallel()
	s, e, address := start(t, nil)
	c := dial(t, address)
	c.call(1, "/a/Wait", "")
	for e.running.Load() < 1 {
		time.Sleep(time.Millisecond) //nolint:forbidigo // It is soon.
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || e.given.Load() != 1 {
		t.Errorf("%v, %d calls were given up", err, e.given.Load())
	}
}

// TestManyConnections calls from many clients at a time, each answered by its own message.
func TestManyConnections(t *testing.T) {
	t.Parallel()
	_, _, address := start(t, nil)
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			c := dial(t, address)
			for i := range 200 {
				id, message := uint32(2*i+1), strings.Repeat(string(rune('a'+n)), 1+i%50)
				c.call(id, "/a/Echo", message)
				if o := c.outcome(id); o.status != "0" || string(o.body) != string(framed(message)) {
					t.Errorf("client %d, call %d: %+v", n, i, o)
					return
				}
			}
		})
	}
	all.Wait()
}

// TestTLSWithoutH2IsRefused: a client that does not say h2 cannot know what is spoken.
func TestTLSWithoutH2IsRefused(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer func() { _, _ = here.Close(), there.Close() }()
	go func() { _ = tls.Client(here, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context()) }() //nolint:gosec // a test
	if err := handshake(t.Context(), tls.Server(there, &tls.Config{Certificates: []tls.Certificate{certificate(t)}, NextProtos: []string{"h2"}})); err == nil || !strings.Contains(err.Error(), "not h2") {
		t.Error(err)
	}
}

// FuzzFrames: whatever a client sends, nothing panics, and the connection ends when it does.
func FuzzFrames(f *testing.F) {
	var ok bytes.Buffer
	framer := http2.NewFramer(&ok, nil)
	must(f, framer.WriteSettings())
	must(f, framer.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, []byte{0x83, 0x86, 0x44, 7, '/', 'a', '/', 'E', 'c', 'h', 'o', 0x5f, 16, 'a', 'p', 'p', 'l', 'i', 'c', 'a', 't', 'i', 'o', 'n', '/', 'g', 'r', 'p', 'c'}))
	must(f, framer.WriteData(1, true, framed("hello")))
	must(f, framer.WriteWindowUpdate(1, 9))
	must(f, framer.WritePing(false, [8]byte{1}))
	must(f, framer.WriteRSTStream(1, http2.ErrCodeCancel))
	f.Add(ok.Bytes())
	f.Fuzz(func(t *testing.T, frames []byte) {
		s, _, _ := start(t, func(s *Server) { s.Timeout = time.Second })
		here, there := net.Pipe()
		s.begin(there)
		go func() { _, _ = io.Copy(io.Discard, here) }()
		_ = here.SetWriteDeadline(time.Now().Add(10 * time.Second))
		_, _ = here.Write(append([]byte(http2.ClientPreface), frames...)) // It may be cut off.
		_ = here.Close()
	})
}
