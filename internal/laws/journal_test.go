package laws_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// journal reads a server's append-only file: every write that it has done, those of scripts one by one, with the ids
// that it gave. It is how a test knows of entries that were in a stream for no longer than a moment. The server must
// have been started with AppendFsync.
func (s *site) journal(each func(args []string) error) error {
	config, err := s.client.ConfigGet(s.Context(), "append*").Result()
	if err != nil {
		return err
	}
	dir, err := s.client.ConfigGet(s.Context(), "dir").Result()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir["dir"], config["appenddirname"], "*.incr.aof"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("find the journal in %v: %v, %w", dir, files, err)
	}
	file, err := os.Open(files[0])
	if err != nil {
		return err
	}
	defer file.Close()
	for from := bufio.NewReader(file); ; {
		args, err := readCommand(from)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := each(args); err != nil {
			return err
		}
	}
}

// readCommand reads one array of bulk strings, and passes over annotations.
func readCommand(from *bufio.Reader) ([]string, error) {
	count, err := readLength(from, '*')
	if err != nil {
		return nil, err
	}
	args := make([]string, count)
	for i := range args {
		size, err := readLength(from, '$')
		if err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(from, text); err != nil {
			return nil, err
		}
		args[i] = string(text[:size])
	}
	return args, nil
}

func readLength(from *bufio.Reader, kind byte) (int, error) {
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			return 0, err
		}
		if line[0] == '#' {
			continue
		}
		if line[0] != kind {
			return 0, fmt.Errorf("the journal has %q where a %c is due", line, kind)
		}
		return strconv.Atoi(strings.TrimRight(line[1:], "\r\n"))
	}
}

// dispatches returns all that was ever added to a pool's ready stream, in order, and how many entries were added to the stream of that name that there is:
// one goes with the last of its pool's workers, and comes back with the next, which begins with an entry of no job, so that tokens go on (reclaim.lua).
func (s *site) dispatches(stream string) (all []dispatch, added int64, err error) {
	err = s.journal(func(args []string) error {
		if strings.EqualFold(args[0], "unlink") && slices.Contains(args[1:], stream) {
			added = 0
		}
		if !strings.EqualFold(args[0], "xadd") || args[1] != stream {
			return nil
		}
		added++
		message := messageOf(args[2], args[3:])
		if message.Values["j"] == "" {
			return nil
		}
		d, err := dispatchOf(message)
		all = append(all, d)
		return err
	})
	return all, added, err
}
