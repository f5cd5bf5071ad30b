package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// readyPoll is the pause between two questions to a server that is starting.
const readyPoll = 2 * time.Millisecond

// errNotReady means that the server asks for patience: nobody listens yet, or it loads its data.
var errNotReady = errors.New("not ready")

// awaitReady returns when the process answers on its port and has loaded its data.
func (s *Server) awaitReady(ctx context.Context, run *process) error {
	poll := time.NewTicker(readyPoll)
	defer poll.Stop()
	for {
		err := ask(ctx, s.Addr(), run.pid)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errPortTaken):
			return err
		}
		select {
		case <-run.done:
			if strings.Contains(s.Log(), "Address already in use") {
				return errPortTaken
			}
			return fmt.Errorf("redis ended at its start; it said:\n%s", s.Log())
		case <-ctx.Done():
			return fmt.Errorf("redis did not answer: %w (%w); it said:\n%s", context.Cause(ctx), err, s.Log())
		case <-poll.C:
		}
	}
}

// ask sends two inline commands and checks that the right process answers both.
func ask(ctx context.Context, addr string, pid int) error {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return errNotReady
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return errNotReady
	}
	if _, err := io.WriteString(conn, "INFO server\r\nPING\r\n"); err != nil {
		return errNotReady
	}
	reader := bufio.NewReader(conn)
	head, err := reader.ReadString('\n')
	if err != nil {
		return errNotReady
	}
	if strings.HasPrefix(head, "-NOAUTH") {
		return nil // It is up; who it is cannot be asked without the password.
	}
	size, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(head, "$")))
	if err != nil {
		return errNotReady
	}
	info := make([]byte, size+len("\r\n"))
	if _, err := io.ReadFull(reader, info); err != nil {
		return errNotReady
	}
	if !strings.Contains(string(info), fmt.Sprintf("process_id:%d\r\n", pid)) {
		return errPortTaken
	}
	if pong, err := reader.ReadString('\n'); err != nil || !strings.HasPrefix(pong, "+PONG") {
		return errNotReady // It says -LOADING.
	}
	return nil
}
