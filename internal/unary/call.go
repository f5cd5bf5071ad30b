package unary

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// heed does what a frame asks for. The error ends the connection.
func (c *conn) heed(frame http2.Frame) error {
	if len(c.ready) > maxUnwritten {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	if _, ok := frame.(*http2.SettingsFrame); !ok && !c.settled { // RFC 9113, 3.4: they come first.
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	switch f := frame.(type) {
	case *http2.MetaHeadersFrame:
		return c.open(f)
	case *http2.DataFrame:
		return c.take(f)
	case *http2.RSTStreamFrame:
		if f.StreamID > c.last {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		c.drop(c.streams[f.StreamID])
	case *http2.WindowUpdateFrame:
		return c.widen(f)
	case *http2.SettingsFrame:
		return c.set(f)
	case *http2.PingFrame:
		if !f.IsAck() {
			_ = c.framer.WritePing(true, f.Data)
		}
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil // Others are none of ours.
}

// open begins a call, or ends its message by trailers, which say nothing.
func (c *conn) open(f *http2.MetaHeadersFrame) error {
	if s := c.streams[f.StreamID]; s != nil {
		if !f.StreamEnded() || s.whole {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		c.endOf(s)
		c.complete(s)
		return nil
	}
	if f.StreamID <= c.last && f.StreamEnded() && len(f.PseudoFields()) == 0 {
		return nil // They were on their way when their call had been answered.
	}
	if f.StreamID%2 == 0 || f.StreamID <= c.last {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if c.last = f.StreamID; f.StreamID > c.most {
		return nil // The client was told that it is not answered.
	}
	if malformed(f) {
		c.reset(f.StreamID, http2.ErrCodeProtocol)
		return nil
	}
	if len(c.streams) >= c.server.MaxCalls || c.running >= c.server.MaxCalls {
		c.reset(f.StreamID, http2.ErrCodeRefusedStream)
		return nil
	}
	s := &stream{id: f.StreamID, method: f.PseudoValue("path"), began: time.Now(), window: c.firstOf, whole: f.StreamEnded()}
	if c.streams[s.id] = s; !s.whole {
		c.partial++
	}
	switch contentType := fieldOf(f, "content-type"); {
	case f.Truncated:
		c.deny(s, &Status{Exhausted, "metadata has " + strconv.Itoa(int(c.server.MaxMetadata)) + " bytes at the most"})
	case f.PseudoValue("method") != "POST" || !isGRPC(contentType):
		c.refuse(s)
	case !c.server.Handler.Knows(s.method):
		c.deny(s, &Status{Unimplemented, "there is no such method"})
	case s.whole:
		c.complete(s)
	}
	return nil
}

// malformed reports what no request of HTTP/2 is, RFC 9113, 8.2.2 and 8.3.1: one of a connection's own fields, or without method, scheme or path.
func malformed(f *http2.MetaHeadersFrame) bool {
	for i := range f.Fields {
		switch name, value := f.Fields[i].Name, f.Fields[i].Value; name {
		case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
			return true
		case "te":
			if value != "trailers" {
				return true
			}
		}
	}
	return !f.Truncated && (f.PseudoValue("method") == "" || f.PseudoValue("scheme") == "" || f.PseudoValue("path") == "")
}

func fieldOf(f *http2.MetaHeadersFrame, name string) string {
	for i := range f.Fields {
		if f.Fields[i].Name == name {
			return f.Fields[i].Value
		}
	}
	return ""
}

// isGRPC reports whether a type of content is gRPC's with the messages of protobuf, and not that of gRPC-Web.
func isGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || rest == "+proto" || rest[0] == ';')
}

// take adds to a message. What it holds the client has back when its call is over.
func (c *conn) take(f *http2.DataFrame) error {
	size := int64(f.Length)
	if c.received -= size; c.received < 0 {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	s := c.streams[f.StreamID]
	if s == nil || s.whole {
		if f.StreamID > c.last || s != nil {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		c.handBack(size) // It was on its way when its call had been answered.
		return nil
	}
	if s.got += size; s.got > streamWindow {
		c.reset(s.id, http2.ErrCodeFlowControl)
		return nil
	}
	s.body = append(s.body, f.Data()...)
	if f.StreamEnded() {
		c.endOf(s)
	}
	if bad := c.checkPrefix(s.body); bad != nil {
		c.deny(s, bad)
	} else if s.whole {
		c.complete(s)
	}
	return nil
}

// checkPrefix refuses a message as soon as it is known that it is none.
func (c *conn) checkPrefix(body []byte) *Status {
	if len(body) < prefixBytes {
		return nil
	}
	switch size := int64(binary.BigEndian.Uint32(body[1:])); {
	case body[0] != 0:
		return &Status{Unimplemented, "messages are not to be compressed"}
	case size > int64(c.server.MaxMessage):
		return &Status{Exhausted, "a message has " + strconv.Itoa(c.server.MaxMessage) + " bytes at the most"}
	case int64(len(body)) > prefixBytes+size:
		return &Status{Invalid, "a call has one message"}
	}
	return nil
}

// endOf notes that nothing more comes of a call.
func (c *conn) endOf(s *stream) {
	s.whole = true
	c.partial--
}

// complete hands a message that has come as a whole to the handler.
func (c *conn) complete(s *stream) {
	switch {
	case len(s.body) < prefixBytes:
		c.deny(s, &Status{Invalid, "there is no message"})
		return
	case len(s.body) < prefixBytes+int(binary.BigEndian.Uint32(s.body[1:])):
		c.deny(s, &Status{Invalid, "the message did not come as a whole"})
		return
	}
	ctx, cancel := context.WithCancel(c.ctx)
	s.cancel, s.running = cancel, true
	c.running++
	c.calls.Go(func() { c.run(ctx, s) })
}

// run asks the handler.
func (c *conn) run(ctx context.Context, s *stream) {
	var answer []byte
	status := &Status{Code: Internal, Text: "the call has failed"}
	defer func() {
		if status.Code == Internal {
			if problem := recover(); problem != nil {
				c.server.OnPanic(problem, debug.Stack())
			}
		}
		s.cancel()
		c.locked(func() {
			c.running--
			if s.running = false; c.streams[s.id] != s {
				c.handBack(s.got) // The client has given up.
			} else {
				c.reply(s, answer, status)
			}
			c.leftIfDone()
		})
	}()
	answer, err := c.server.Handler.Answer(ctx, s.method, s.body[prefixBytes:])
	switch known, ok := errors.AsType[*Status](err); {
	case err == nil:
		status = &Status{Code: OK}
	case ok:
		status = known
	default:
		status = &Status{Unavailable, "not decided"}
	}
}

// deny answers a call that does not come to the handler.
func (c *conn) deny(s *stream, status *Status) {
	c.server.OnDenied()
	c.reply(s, nil, status)
}

// reply writes an answer, as far as the client's window has room.
func (c *conn) reply(s *stream, message []byte, status *Status) {
	c.begin()
	c.field("content-type", "application/grpc")
	c.field("grpc-accept-encoding", "identity")
	if status.Code != OK {
		c.field("grpc-status", strconv.Itoa(status.Code))
		c.field("grpc-message", url.PathEscape(status.Text))
		c.headers(s, true)
		return
	}
	c.headers(s, false)
	s.answer = append(binary.BigEndian.AppendUint32(make([]byte, 1, prefixBytes+len(message)), uint32(len(message))), message...) //nolint:gosec // of a handler
	if c.send(s); s.answer != nil {
		s.began = time.Now()
		c.blocked = append(c.blocked, s)
		if !c.within { // A frame that has begun has its time, and then it is looked.
			_ = c.net.SetReadDeadline(s.began.Add(c.look())) // Of the read under way, which may have had longer.
		}
	}
}

// refuse answers what is no call of gRPC.
func (c *conn) refuse(s *stream) {
	c.block = c.block[:0]
	c.field(":status", "415")
	c.headers(s, true)
}

func (c *conn) begin() {
	c.block = c.block[:0]
	c.field(":status", "200")
}

func (c *conn) field(name, value string) {
	_ = c.fields.WriteField(hpack.HeaderField{Name: name, Value: value})
}

// headers writes the fields that were encoded. With the last ones the call is over.
func (c *conn) headers(s *stream, last bool) {
	_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: c.block, EndHeaders: true, EndStream: last})
	if !last {
		return
	}
	if !s.whole {
		_ = c.framer.WriteRSTStream(s.id, http2.ErrCodeNo) // What still comes of it is not waited for.
	}
	c.drop(s)
}

// send writes what there is room for, and ends the call with the last of it.
func (c *conn) send(s *stream) {
	for len(s.answer) > 0 {
		n := min(int64(len(s.answer)), int64(c.maxFrame), c.window, s.window)
		if n <= 0 {
			return
		}
		_ = c.framer.WriteData(s.id, false, s.answer[:n])
		s.answer, c.window, s.window = s.answer[n:], c.window-n, s.window-n
	}
	s.answer, c.block = nil, c.block[:0]
	c.field("grpc-status", "0")
	c.headers(s, true)
}

// resume sends what waited for a window.
func (c *conn) resume() {
	c.blocked = slices.DeleteFunc(c.blocked, func(s *stream) bool {
		if c.streams[s.id] == s {
			c.send(s)
		}
		return c.streams[s.id] != s
	})
}

// drop forgets a call. One whose handler runs counts until it has ended.
func (c *conn) drop(s *stream) {
	if s == nil {
		return
	}
	if !s.whole {
		c.partial--
	}
	if delete(c.streams, s.id); s.running {
		s.cancel()
	} else {
		c.handBack(s.got)
	}
	c.leftIfDone()
}

func (c *conn) reset(id uint32, code http2.ErrCode) {
	_ = c.framer.WriteRSTStream(id, code)
	c.drop(c.streams[id])
}

// handBack lets the client send as much again, once it is a quarter of all.
func (c *conn) handBack(size int64) {
	if c.handled += size; c.handled >= connWindow/4 {
		_ = c.framer.WriteWindowUpdate(0, uint32(c.handled)) //nolint:gosec // a window at the most
		c.received, c.handled = c.received+c.handled, 0
	}
}

// widen adds to a window, RFC 9113, 6.9.
func (c *conn) widen(f *http2.WindowUpdateFrame) error {
	if f.StreamID == 0 {
		if c.window += int64(f.Increment); c.window > math.MaxInt32 {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
	} else if s := c.streams[f.StreamID]; s != nil {
		if s.window += int64(f.Increment); s.window > math.MaxInt32 {
			c.reset(s.id, http2.ErrCodeFlowControl)
		}
	} else if f.StreamID > c.last {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.resume()
	return nil
}

// set heeds the client's settings, RFC 9113, 6.5.
func (c *conn) set(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	c.settled = true
	err := f.ForeachSetting(func(one http2.Setting) error {
		if err := one.Valid(); err != nil {
			return err
		}
		switch one.ID {
		case http2.SettingInitialWindowSize:
			more := int64(one.Val) - c.firstOf
			for _, s := range c.streams {
				if s.window += more; s.window > math.MaxInt32 {
					return http2.ConnectionError(http2.ErrCodeFlowControl)
				}
			}
			c.firstOf = int64(one.Val)
		case http2.SettingMaxFrameSize:
			c.maxFrame = min(int(one.Val), frameBytes)
		case http2.SettingHeaderTableSize:
			c.fields.SetMaxDynamicTableSizeLimit(one.Val)
		}
		return nil
	})
	if err == nil {
		_ = c.framer.WriteSettingsAck()
		c.resume()
	}
	return err
}
