package unary

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// client is one of HTTP/2, frame by frame.
type client struct {
	tb     testing.TB
	net    net.Conn
	framer *http2.Framer
	block  bytes.Buffer
	fields *hpack.Encoder
}

// dial connects, and sends the settings.
func dial(tb testing.TB, address string, settings ...http2.Setting) *client {
	tb.Helper()
	c := connect(tb, address)
	must(tb, c.framer.WriteSettings(settings...))
	return c
}

func connect(tb testing.TB, address string) *client {
	tb.Helper()
	conn, err := (&net.Dialer{}).DialContext(tb.Context(), "tcp", address)
	must(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	must(tb, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(conn, http2.ClientPreface)
	must(tb, err)
	c := &client{tb: tb, net: conn, framer: http2.NewFramer(conn, conn)}
	c.framer.ReadMetaHeaders, c.framer.AllowIllegalWrites = hpack.NewDecoder(4096, nil), true
	c.fields = hpack.NewEncoder(&c.block)
	return c
}

// open begins a call. With end it has no message.
func (c *client) open(id uint32, method string, end bool, more ...string) {
	c.tb.Helper()
	c.block.Reset()
	pairs := append([]string{":method", "POST", ":scheme", "http", ":path", method, ":authority", "test", "content-type", "application/grpc", "te", "trailers"}, more...)
	for i := 0; i < len(pairs); i += 2 {
		if at := slices.Index(pairs[i+2:], pairs[i]); at < 0 { // The last of a name counts.
			must(c.tb, c.fields.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]}))
		}
	}
	must(c.tb, c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block.Bytes(), EndHeaders: true, EndStream: end}))
}

func (c *client) get(id uint32) {
	c.tb.Helper()
	c.block.Reset()
	for _, field := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/a/Echo"}} {
		must(c.tb, c.fields.WriteField(field))
	}
	must(c.tb, c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block.Bytes(), EndHeaders: true, EndStream: true}))
}

func (c *client) read() http2.Frame {
	c.tb.Helper()
	frame, err := c.framer.ReadFrame()
	must(c.tb, err)
	return frame
}

func framed(message string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...) //nolint:gosec // short
}

func (c *client) call(id uint32, method, message string) {
	c.tb.Helper()
	c.open(id, method, false)
	must(c.tb, c.framer.WriteData(id, true, framed(message)))
}

// outcome is how a call, or the connection, ended.
type outcome struct {
	body           []byte
	status, text   string
	reset, goAway  bool
	code           http2.ErrCode
	http           string
	lastOfTheGoing uint32
}

// outcome reads until a call ends, or the connection is told to, and lets the server send on unless asked not to.
func (c *client) outcome(id uint32) (o outcome) {
	c.tb.Helper()
	for {
		switch f := c.read().(type) {
		case *http2.GoAwayFrame:
			return outcome{goAway: true, code: f.ErrCode, lastOfTheGoing: f.LastStreamID}
		case *http2.MetaHeadersFrame:
			if f.StreamID == id {
				for _, field := range f.Fields {
					switch field.Name {
					case ":status":
						o.http = field.Value
					case "grpc-status":
						o.status = field.Value
					case "grpc-message":
						o.text = field.Value
					}
				}
				if f.StreamEnded() {
					return o
				}
			}
		case *http2.DataFrame:
			if f.StreamID == id {
				o.body = append(o.body, f.Data()...)
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				o.reset, o.code = true, f.ErrCode
				return o
			}
		}
	}
}
