package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// pushType begins a message that Redis sends unasked.
const pushType = '>'

// setsUpConnection says whether a client sends the command by itself on a new connection.
func setsUpConnection(name string) bool {
	switch name {
	case "HELLO", "AUTH", "CLIENT", "SELECT", "READONLY":
		return true
	}
	return false
}

func commandName(words []string) string { return strings.ToUpper(words[0]) }

// readCommand reads one command, as an array of bulk strings or on a line of its own, and returns its words (one
// at least) and its bytes.
func readCommand(r *bufio.Reader) (words []string, raw []byte, err error) {
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return nil, nil, err
		}
		if line[0] == '*' {
			return readArray(r, line)
		}
		if fields := strings.Fields(string(line)); len(fields) > 0 {
			return fields, line, nil
		}
		// Redis ignores empty lines too.
	}
}

// readArray reads the bulk strings that the head of an array announces.
func readArray(r *bufio.Reader, head []byte) (words []string, raw []byte, err error) {
	count, err := length(head)
	if err != nil {
		return nil, nil, err
	}
	if count < 1 {
		return nil, nil, fmt.Errorf("read command: array of %d words", count)
	}
	raw = head
	for range count {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return nil, nil, err
		}
		size, err := length(line)
		if err != nil {
			return nil, nil, err
		}
		if line[0] != '$' || size < 0 {
			return nil, nil, fmt.Errorf("read command: %q is no bulk string", line)
		}
		word := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(r, word); err != nil {
			return nil, nil, err
		}
		words = append(words, string(word[:size]))
		raw = append(append(raw, line...), word...)
	}
	return words, raw, nil
}

// copyReply copies one whole reply of RESP2 or RESP3, nested as it may be.
func copyReply(w *bufio.Writer, r *bufio.Reader) error {
	for left := 1; left > 0; left-- {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return err
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
		switch line[0] {
		case '+', '-', ':', '_', ',', '#', '(':
			continue // The line is all of it.
		}
		size, err := length(line)
		if err != nil {
			return err
		}
		switch line[0] {
		case '$', '!', '=':
			if size >= 0 {
				if _, err := io.CopyN(w, r, int64(size+len("\r\n"))); err != nil {
					return err
				}
			}
		case '*', '~', pushType:
			left += max(size, 0)
		case '%':
			left += 2 * size
		case '|':
			left += 2*size + 1 // Attributes precede what they belong to.
		default:
			return fmt.Errorf("read reply: unknown type in %q", line)
		}
	}
	return nil
}

// length reads the number in a head such as "*3\r\n".
func length(head []byte) (int, error) {
	size, err := strconv.Atoi(string(bytes.TrimSpace(head[1:])))
	if err != nil {
		return 0, fmt.Errorf("read length of %q: %w", head, err)
	}
	return size, nil
}
