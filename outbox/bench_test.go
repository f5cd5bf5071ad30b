//go:build unix

package outbox_test

import (
	"testing"

	"github.com/headgate/headgate/internal/outboxtest"
)

func BenchmarkRelay(b *testing.B) {
	b.Run("postgresql", func(b *testing.B) { outboxtest.BenchmarkRelay(b, postgresql(b)) })
	b.Run("mariadb", func(b *testing.B) { outboxtest.BenchmarkRelay(b, mariadb(b)) })
}
