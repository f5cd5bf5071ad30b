package unary

import (
	"bytes"
	"io"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestWhatWasOnItsWayToAnAnsweredCallIsPassedOver: trailers, and the message of a call whose fields were malformed. The connection serves on.
func TestWhatWasOnItsWayToAnAnsweredCallIsPassedOver(t *testing.T) {
	t.Parallel()
	_, _, address := start(t, nil)
	trailers := func(c *client, id uint32) {
		c.block.Reset()
		must(t, c.fields.WriteField(hpack.HeaderField{Name: "x-sum", Value: "1"}))
		must(t, c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block.Bytes(), EndHeaders: true, EndStream: true}))
	}
	for name, begin := range map[string]func(c *client){
		"trailers after a denial": func(c *client) {
			c.open(1, "/b/Unknown", false)
			trailers(c, 1)
		},
		"a message after malformed fields": func(c *client) {
			c.open(1, "/a/Echo", false, "Upper", "x")
			must(t, c.framer.WriteData(1, true, framed("hello")))
		},
		"trailers after malformed fields": func(c *client) {
			c.open(1, "/a/Echo", false, "Upper", "x")
			trailers(c, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := dial(t, address)
			begin(c)
			c.call(3, "/a/Echo", "after")
			if o := c.outcome(3); o.status != "0" {
				t.Errorf("the next call: %+v", o)
			}
		})
	}
}

// TestAFrameHasItsTimeWhileAnAnswerWaits for the window of its client.
func TestAFrameHasItsTimeWhileAnAnswerWaits(t *testing.T) {
	t.Parallel()
	_, e, address := start(t, nil)
	c := dial(t, address, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3})
	c.call(1, "/a/Wait", "hello")
	for e.running.Load() == 0 {
		time.Sleep(time.Millisecond) //nolint:forbidigo // It is soon.
	}
	var ping bytes.Buffer
	must(t, http2.NewFramer(&ping, nil).WritePing(false, [8]byte{1}))
	_, err := c.net.Write(ping.Bytes()[:12])
	must(t, err)
	time.Sleep(50 * time.Millisecond) //nolint:forbidigo // The half has come.
	close(e.release)
	time.Sleep(1500 * time.Millisecond) //nolint:forbidigo // Of the ten seconds that a frame has.
	_, err = c.net.Write(ping.Bytes()[12:])
	must(t, err)
	must(t, c.framer.WriteWindowUpdate(1, 100))
	if o := c.outcome(1); o.status != "0" {
		t.Errorf("%+v", o)
	}
}

// TestEachFrameHasATimeOfItsOwn where each comes with the first half of the next.
func TestEachFrameHasATimeOfItsOwn(t *testing.T) {
	t.Parallel()
	_, _, address := start(t, func(s *Server) { s.Timeout = 400 * time.Millisecond })
	c := dial(t, address)
	var pings bytes.Buffer
	framer := http2.NewFramer(&pings, nil)
	for range 30 {
		must(t, framer.WritePing(false, [8]byte{1}))
	}
	const each = 17
	_, err := c.net.Write(pings.Next(each / 2))
	must(t, err)
	for pings.Len() > each {
		time.Sleep(50 * time.Millisecond) //nolint:forbidigo // A frame has 400.
		_, err := c.net.Write(pings.Next(each))
		must(t, err)
	}
	_, err = io.Copy(c.net, &pings)
	must(t, err)
	c.call(1, "/a/Echo", "after")
	if o := c.outcome(1); o.status != "0" {
		t.Errorf("%+v", o)
	}
}

// TestAMessageThatDoesNotEndIsGivenUpThoughOthersCome, and an answer that nobody takes.
func TestAMessageThatDoesNotEndIsGivenUpThoughOthersCome(t *testing.T) {
	t.Parallel()
	_, _, address := start(t, func(s *Server) { s.Timeout = 300 * time.Millisecond })
	c := dial(t, address, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3})
	c.open(1, "/a/Echo", false)
	c.call(3, "/a/Echo", "nobody takes it")
	go func() {
		framer := http2.NewFramer(c.net, nil)
		for range 60 {
			if framer.WritePing(false, [8]byte{1}) != nil {
				return
			}
			time.Sleep(50 * time.Millisecond) //nolint:forbidigo // Something comes more often than it is looked.
		}
		_ = c.net.Close()
	}()
	given := map[uint32]http2.ErrCode{}
	for len(given) < 2 {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			t.Fatalf("after 3 s were given up: %v", given)
		}
		if f, ok := frame.(*http2.RSTStreamFrame); ok {
			given[f.StreamID] = f.ErrCode
		}
	}
	if given[1] != http2.ErrCodeCancel || given[3] != http2.ErrCodeCancel {
		t.Errorf("%v", given)
	}
}
