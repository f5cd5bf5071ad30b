package child

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// ErrNotFound means that neither redis-server nor valkey-server is in PATH.
var ErrNotFound = errors.New("no redis-server or valkey-server in PATH")

// errPortTaken means that somebody else bound the port between the probe and the start.
var errPortTaken = errors.New("port taken")

const (
	// startTimeout bounds the wait for a server's first answer. It takes 8 ms on an idle machine.
	startTimeout = 15 * time.Second
	// stopTimeout is how long Stop waits for a server to leave by itself.
	stopTimeout = 5 * time.Second
	// portAttempts is how many ports Start tries.
	portAttempts = 20
)

// Find returns the path of redis-server or, without it, valkey-server.
func Find() (string, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNotFound
}

// Config says what to run.
type Config struct {
	// Binary is the path of the server, as Find returns it.
	Binary string
	// Dir is the server's working directory. It must exist; whoever made it removes it after Close.
	Dir string
	// File names a configuration file that is read before any argument, and that a Sentinel rewrites; empty means none.
	File string
	// Args follow the server's own arguments, so they win. Persistence is off unless they turn it on.
	Args []string
	// Env is added to the environment of this process, as "name=value"; nil adds nothing.
	Env []string
	// PortArgs, if not nil, returns further arguments for the port that was picked.
	PortArgs func(port int) []string
}

// Server is one redis-server on one port of the loopback interface. Its methods may be called from several
// goroutines at once; those that end or start the process take turns.
type Server struct {
	config Config
	port   port
	log    tail

	// turn is held by Stop, Kill, Restart and Close from the first step to the last. Nothing else waits for it.
	turn sync.Mutex
	mu   struct {
		sync.Mutex
		process *process // the last one started, never nil after Start
	}
}

// process is one run of the server.
type process struct {
	pid  int
	done chan struct{} // closed when the process has ended and was waited for
	os   *os.Process
}

// Start runs a server on a free port and returns when it answers.
func Start(ctx context.Context, config Config) (*Server, error) {
	var err error
	for range portAttempts {
		server := &Server{config: config}
		if server.port, err = reservePort(ctx); err != nil {
			return nil, fmt.Errorf("reserve port: %w", err)
		}
		if err = server.spawn(ctx); err == nil {
			return server, nil
		}
		server.Close()
		if !errors.Is(err, errPortTaken) {
			break
		}
	}
	return nil, err
}

// Addr returns the address, "127.0.0.1:port". It never changes.
func (s *Server) Addr() string { return s.port.addr() }

// Log returns the last lines the server wrote.
func (s *Server) Log() string { return s.log.String() }

// PID returns the process id of the last run.
func (s *Server) PID() int { return s.process().pid }

// Running says whether the server's process has not ended. A paused one is running.
func (s *Server) Running() bool {
	process := s.process()
	return process != nil && !process.ended()
}

// Signal sends a signal to the process.
func (s *Server) Signal(sig os.Signal) error {
	if err := s.process().os.Signal(sig); err != nil {
		return fmt.Errorf("signal redis: %w", err)
	}
	return nil
}

// Stop asks the server to leave and kills it when it does not. It returns when the process has ended.
func (s *Server) Stop() {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.stopLocked()
}

// stopLocked is Stop for those whose turn it is.
func (s *Server) stopLocked() {
	process := s.process()
	if process == nil || process.ended() {
		return
	}
	resume(process.os) // A stopped process takes no SIGTERM.
	_ = process.os.Signal(syscall.SIGTERM)
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-process.done:
	case <-timeout.C:
		process.kill()
	}
}

// Kill ends the server at once, as a crash would. It returns when the process has ended.
func (s *Server) Kill() {
	s.turn.Lock()
	defer s.turn.Unlock()
	if process := s.process(); process != nil {
		process.kill()
	}
}

// Restart starts the server again on its port and in its directory, after stopping it if it runs.
func (s *Server) Restart(ctx context.Context) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.stopLocked()
	return s.spawn(ctx)
}

// Close kills the server and gives up the port.
func (s *Server) Close() {
	s.Kill()
	s.port.release()
}

// spawn starts the process and waits until it answers. A process that does not is killed.
func (s *Server) spawn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s.log.Reset()
	process, err := s.fork(ctx)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.config.Binary, err)
	}
	s.mu.Lock()
	s.mu.process = process
	s.mu.Unlock()
	if err := s.awaitReady(ctx, process); err != nil {
		process.kill()
		return err
	}
	return nil
}

// fork starts the process from a goroutine that keeps its thread: see the package comment.
func (s *Server) fork(ctx context.Context) (*process, error) {
	args := append([]string{
		"--bind", loopback, "--port", strconv.Itoa(s.port.number), "--dir", s.config.Dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no", "--logfile", "",
	}, s.config.Args...)
	if s.config.PortArgs != nil {
		args = append(args, s.config.PortArgs(s.port.number)...)
	}
	if s.config.File != "" {
		args = append([]string{s.config.File}, args...)
	}
	// The ctx bounds the start, not the life: the server stays until Close.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.config.Binary, args...)
	cmd.Dir = s.config.Dir
	if s.config.Env != nil {
		cmd.Env = append(os.Environ(), s.config.Env...)
	}
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	cmd.SysProcAttr = dieWithParent()

	run := &process{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() { // It ends with the process, which kill and Close wait for.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // How it ended is in the log.
		}
		close(run.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	run.pid, run.os = cmd.Process.Pid, cmd.Process
	return run, nil
}

func (s *Server) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.process
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) kill() {
	_ = p.os.Kill() // The only error is that it has ended.
	<-p.done
}

// loopback is the only interface a server listens on.
const loopback = "127.0.0.1"

// addrOf returns the loopback address of a port.
func addrOf(number int) string { return net.JoinHostPort(loopback, strconv.Itoa(number)) }
