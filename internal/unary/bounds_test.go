package unary

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestAnAnswerWaitsForTheWindow of its stream and of the connection, in order, and is given up after the time-out.
func TestAnAnswerWaitsForTheWindow(t *testing.T) {
	t.Parallel()
	_, _, address := start(t, nil)
	c := dial(t, address, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	c.call(1, "/a/Long", "")
	var body []byte
	granted, seen := 10, 0
	for seen < granted {
		if f, ok := c.read().(*http2.DataFrame); ok {
			body, seen = append(body, f.Data()...), seen+len(f.Data())
		}
	}
	c.call(3, "/a/Echo", "short")
	if o := c.outcome(3); o.status != "0" || string(o.body) != string(framed("short")) { // Exactly ten bytes: it is not held up by the first.
		t.Fatalf("%+v", o)
	}
	for step := 1; len(body) < 100_000+prefixBytes; step++ {
		more := step * 1000
		must(t, c.framer.WriteWindowUpdate(1, uint32(more))) //nolint:gosec // small
		must(t, c.framer.WriteWindowUpdate(0, uint32(more))) //nolint:gosec // small
		granted += more
		for want := min(granted, 100_000+prefixBytes); seen < want; {
			if f, ok := c.read().(*http2.DataFrame); ok && f.StreamID == 1 {
				body, seen = append(body, f.Data()...), seen+len(f.Data())
			}
		}
		if seen > granted {
			t.Fatalf("%d bytes came, %d were granted", seen, granted)
		}
	}
	if o := c.outcome(1); o.status != "0" || !bytes.Equal(body[prefixBytes:], bytes.Repeat([]byte{7}, 100_000)) {
		t.Errorf("%+v after %d bytes", o, len(body))
	}
	_, _, address = start(t, func(s *Server) { s.Timeout = 200 * time.Millisecond })
	c = dial(t, address, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	c.call(5, "/a/Long", "")
	if o := c.outcome(5); !o.reset || o.code != http2.ErrCodeCancel {
		t.Errorf("whose window stays shut: %+v", o)
	}
	must(t, c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	c.call(7, "/a/Echo", "after")
	if o := c.outcome(7); o.status != "0" {
		t.Errorf("after it: %+v", o)
	}
}

// TestAMessageThatDoesNotEndIsGivenUp, and the connection serves on.
func TestAMessageThatDoesNotEndIsGivenUp(t *testing.T) {
	t.Parallel()
	_, _, address := start(t, func(s *Server) { s.Timeout = time.Second })
	c := dial(t, address)
	c.open(1, "/a/Echo", false)
	must(t, c.framer.WriteData(1, false, framed("hello")[:6]))
	if o := c.outcome(1); !o.reset || o.code != http2.ErrCodeCancel {
		t.Errorf("%+v", o)
	}
	must(t, c.framer.WriteData(1, true, []byte("late"))) // It was on its way.
	c.call(3, "/a/Echo", "still")
	if o := c.outcome(3); o.status != "0" {
		t.Errorf("%+v", o)
	}
}

// TestResetsDoNotMultiplyCalls: who opens calls and gives them up at once has no more handlers at work than any other (CVE-2023-44487).
func TestResetsDoNotMultiplyCalls(t *testing.T) {
	t.Parallel()
	_, e, address := start(t, func(s *Server) { s.MaxCalls = 5 })
	c := dial(t, address)
	for id := uint32(1); id <= 2*200; id += 2 {
		c.call(id, "/a/Hold", "")
		must(t, c.framer.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	for e.running.Load() < 5 { // Those that are let in may not have begun yet.
		time.Sleep(time.Millisecond) //nolint:forbidigo // It is soon.
	}
	c.call(401, "/a/Hold", "")
	if o := c.outcome(401); !o.reset || o.code != http2.ErrCodeRefusedStream || e.most.Load() != 5 {
		t.Errorf("one more than five: %+v; %d handlers at a time", o, e.most.Load())
	}
	close(e.release)
	for e.running.Load() > 0 {
		time.Sleep(time.Millisecond) //nolint:forbidigo // It is soon.
	}
	c.call(403, "/a/Echo", "room")
	for id := uint32(403); ; id += 2 { // The connection hears a moment later that there is room.
		o := c.outcome(id)
		if o.status == "0" {
			return
		}
		if !o.reset || o.code != http2.ErrCodeRefusedStream {
			t.Fatalf("with room: %+v", o)
		}
		c.call(id+2, "/a/Echo", "room")
	}
}

// TestTheClientHasItsWindowBack: a connection takes many times what its messages may hold together; who goes beyond that at a time loses it.
func TestTheClientHasItsWindowBack(t *testing.T) {
	t.Parallel()
	_, _, address := start(t, nil)
	c := dial(t, address)
	must(t, c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	must(t, c.framer.WriteWindowUpdate(0, 1<<30))
	message := strings.Repeat("x", 15<<10)
	for id := uint32(1); id < 2*400; id += 2 { // 6 MB
		c.call(id, "/a/Echo", message)
		if o := c.outcome(id); o.status != "0" {
			t.Fatalf("call %d: %+v", id, o)
		}
	}
	for id := uint32(1001); ; id += 2 {
		c.open(id, "/a/Wait", false)
		must(t, c.framer.WriteData(id, true, framed(message)))
		if id == 1001+2*80 { // 1.2 MB at a time
			break
		}
	}
	if o := c.outcome(99_999); !o.goAway || o.code != http2.ErrCodeFlowControl {
		t.Errorf("beyond the window: %+v", o)
	}
}

// TestWhoDoesNotReadIsCutOff before what is to be written to it has grown.
func TestWhoDoesNotReadIsCutOff(t *testing.T) {
	t.Parallel()
	_, _, address := start(t, nil)
	c := dial(t, address)
	var pings bytes.Buffer
	framer := http2.NewFramer(&pings, nil)
	for range 1000 {
		must(t, framer.WritePing(false, [8]byte{}))
	}
	sent := 0
	for ; sent < 10_000; sent++ { // 170 MB
		if _, err := c.net.Write(pings.Bytes()); err != nil {
			break
		}
	}
	if sent == 10_000 {
		t.Error("it is served on")
	}
}

func TestSilentClientsAreSentAway(t *testing.T) {
	t.Parallel()
	_, _, address := start(t, func(s *Server) { s.Timeout, s.Idle = 200*time.Millisecond, 300*time.Millisecond })
	c := dial(t, address)
	c.call(1, "/a/Echo", "x")
	c.outcome(1)
	if o := c.outcome(3); !o.goAway || o.code != http2.ErrCodeNo {
		t.Errorf("idle: %+v", o)
	}
	for name, text := range map[string]string{
		"nothing": "", "half a preface": http2.ClientPreface[:10], "half a frame": http2.ClientPreface + "\x00\x00\x08\x06\x00\x00\x00\x00\x00half", "half a head": http2.ClientPreface + "\x00\x00",
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		must(t, err)
		_, err = io.WriteString(conn, text)
		must(t, err)
		must(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		_ = conn.Close()
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	must(t, err)
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	must(t, err)
	if text, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 415 ") || !strings.HasSuffix(string(text), "this speaks gRPC\n") {
		t.Errorf("HTTP/1 is answered %q, %v", text, err)
	}
}
