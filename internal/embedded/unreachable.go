package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// unreachable says what to do about a Redis that gave no good first answer. What go-redis and Redis say themselves
// holds no credentials.
func unreachable(options *redis.Options, err error) error {
	return fmt.Errorf("redis at %s: %w: %s", options.Addr, err, advice(options, err))
}

func advice(options *redis.Options, err error) string {
	if advice, ok := adviceOnReply(err); ok {
		return advice
	}
	encrypted := options.TLSConfig != nil
	switch {
	case isA[*net.DNSError](err):
		return "check the host's name"
	case isA[tls.RecordHeaderError](err):
		return "it does not speak TLS: write redis:// instead of rediss://"
	case isA[*tls.CertificateVerificationError](err):
		return "its certificate is not trusted: install the authority's on this machine"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nobody listens there: start Redis, or correct the address"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		if encrypted {
			return "it closed the connection: does it speak TLS?"
		}
		return "it closed the connection: if it speaks TLS, write rediss:// instead of redis://"
	case isTimeout(err) && encrypted:
		return "it does not answer: check the address, the firewall and that it speaks TLS (if not, write redis://)"
	case isTimeout(err):
		return "it does not answer: check the address, the firewall and that Redis is not stuck"
	}
	return "check that the address is that of a Redis"
}

// Advice says what to do about an error that Redis has answered, also long after Open; empty where nobody knows.
func Advice(err error) string {
	reply, ok := errors.AsType[redis.Error](err)
	if !ok {
		return ""
	}
	advice, _ := adviceOnReply(reply)
	return advice
}

// otherKeys is what to do where a user may run a command, but not on its keys.
const otherKeys = "this user may not touch these keys: see ACL SETUSER; those of each partition begin otherwise, allow ~PREFIX{[0-9]*}:*"

// adviceOnReply knows the errors that Redis itself answers.
func adviceOnReply(err error) (string, bool) {
	for _, known := range []struct{ part, advice string }{
		{"NOAUTH", "it wants a password: redis://user:password@host:port"},
		{"WRONGPASS", "it does not know this user and password"},
		{"without any password configured", "it has no password: leave it out"},
		{"to access one of the keys", otherKeys}, // Redis up to 7.0, then in scripts, then later ones.
		{"can't access at least one of the keys", otherKeys},
		{"to access a key", otherKeys},
		{"NOPERM", "this user may not run that command: see ACL SETUSER"},
		{"LOADING", "it still loads its data: try again"},
		{"DENIED", "it is in protected mode: give it a password or bind it to this network"},
		{"MASTERDOWN", "it is a replica without a master: give the master's address"},
		{"READONLY", "it is a replica and takes no writes: give the master's address, or its Sentinels'"},
		{"NOREPLICAS", "it has too few replicas to take writes: see min-replicas-to-write"},
		{"OOM ", "it is full: raise its maxmemory, or let go of something"},
		{"MISCONF", "it cannot save and takes no writes: see its log"},
		{"cluster support disabled", "it is no cluster: write redis:// instead of redis-cluster://"},
		{"DB index is out of range", "it has no such database"},
	} {
		if strings.Contains(err.Error(), known.part) {
			return known.advice, true
		}
	}
	return "", false
}

func isTimeout(err error) bool {
	netErr, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || ok && netErr.Timeout()
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
