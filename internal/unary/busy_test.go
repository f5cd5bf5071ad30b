package unary

import (
	"testing"

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
