package memory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/store"
)

// crowd is a partition in which many tenants have buckets, and a question of each.
func crowd(b *testing.B) (*memory.Partition, []store.Question) {
	b.Helper()
	limit := admission.Limit{Tokens: 100, Per: time.Second, Burst: 1_000_000}
	p, questions := memory.New(memory.Config{}), make([]store.Question, 100_000)
	for i := range questions {
		questions[i] = store.Question{
			Tenant: fmt.Sprint("tenant-", i), Queue: "mail", Class: admission.High, Cost: 1, Limits: [admission.Levels]admission.Limit{limit, limit, limit, limit},
		}
		if _, _, err := p.Take(b.Context(), 0, questions[i]); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	return p, questions
}

func BenchmarkTakeOfManyTenants(b *testing.B) {
	p, questions := crowd(b)
	for i := range b.N {
		if v, _, err := p.Take(b.Context(), 0, questions[i*7919%len(questions)]); err != nil || v.Decision != admission.Admitted {
			b.Fatal(v, err)
		}
	}
}

func BenchmarkGrantOfManyTenants(b *testing.B) {
	p, questions := crowd(b)
	for i := range b.N {
		at := i * 7919 % len(questions)
		_, err := p.Grant(b.Context(), &store.Grant{
			Member: "l1", Lease: time.Second, Beat: time.Second, Questions: questions[at : at+1],
			Accounts: []store.Account{{Level: admission.LevelTenant, Want: 2, Cap: 10}},
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
