package peers

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
)

// replayed makes a call that has the arguments of one of Headgate's, and whose function sends the commands that Headgate's sent, with constants: it reads no
// argument, decides nothing and makes no text, so that no script with these commands takes less.
func replayed(b *testing.B, server *redistest.Server, watch *stopwatch, call func(n int) error) func(n int) error {
	b.Helper()
	for n := range warmCalls {
		check(b, call(n))
	}
	sent := recorded(b, server, func() { check(b, call(warmCalls)) })
	var library strings.Builder
	library.WriteString("#!lua name=replay\nredis.register_function('replay', function()\nlocal call = redis.call\n")
	for _, words := range sent[1:] {
		literals := make([]string, len(words))
		for i, word := range words {
			literals[i] = literal(word)
		}
		fmt.Fprintf(&library, "call(%s)\n", strings.Join(literals, ", "))
	}
	library.WriteString("return 'done'\nend)\n")
	client := newClient(b, watch.options(server))
	check(b, client.FunctionLoad(b.Context(), library.String()).Err())
	args := []any{"fcall", "replay"}
	for _, word := range sent[0][2:] {
		args = append(args, word)
	}
	return func(int) error { return client.Do(b.Context(), args...).Err() }
}

// recorded returns the words of the longest call of a function that Redis runs meanwhile, and behind it those of each command that the function sends.
func recorded(b *testing.B, server *redistest.Server, meanwhile func()) (longest [][]string) {
	b.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(b.Context(), "tcp", server.Addr())
	check(b, err)
	defer conn.Close()
	_, err = conn.Write([]byte("MONITOR\r\n"))
	check(b, err)
	lines := bufio.NewReader(conn)
	_, err = lines.ReadString('\n')
	check(b, err)
	meanwhile()
	check(b, server.Client(b).Echo(b.Context(), "the end").Err())
	var sent [][]string
	for {
		line, err := lines.ReadString('\n')
		check(b, err)
		from, said, _ := strings.Cut(line, "] ")
		words := unquoted(b, strings.TrimSpace(said))
		switch {
		case words[0] == "echo":
			return longest
		case words[0] == "fcall":
			sent = [][]string{words}
		case strings.HasSuffix(from, " lua"):
			sent = append(sent, words)
		}
		if len(sent) > len(longest) {
			longest = sent
		}
	}
}

// unquoted returns the words of a line of MONITOR.
func unquoted(b *testing.B, line string) (words []string) {
	b.Helper()
	for line != "" {
		quoted, err := strconv.QuotedPrefix(line)
		check(b, err)
		word, err := strconv.Unquote(quoted)
		check(b, err)
		words = append(words, word)
		line = strings.TrimPrefix(line[len(quoted):], " ")
	}
	return words
}

// literal is a text as Lua reads it.
func literal(text string) string {
	var lua strings.Builder
	for _, c := range []byte(text) {
		fmt.Fprintf(&lua, `\%03d`, c)
	}
	return `"` + lua.String() + `"`
}
