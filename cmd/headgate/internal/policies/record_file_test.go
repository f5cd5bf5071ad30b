package policies

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) {
	flag.Parse()
	redistest.Main(m)
}

// watched calls seen before each record that is put.
type watched struct {
	store.Deployment
	seen func(tenant string)
}

func (w watched) PutRecord(ctx context.Context, e store.RecordEdit) (int64, error) {
	w.seen(e.Tenant)
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return w.Deployment.PutRecord(ctx, e)
}

// TestAnImportThatIsEndedGoesOn: whatever it has stored until then is kept already, and the same again stores the rest.
func TestAnImportThatIsEndedGoesOn(t *testing.T) {
	t.Parallel()
	s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	base := policy.Default()
	base.TenantRecords = true
	if _, err := rollout.Put(t.Context(), s, base, rollout.Edit{Expected: rollout.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	const records, ended = 1000, 700
	var lines strings.Builder
	for i := range records {
		fmt.Fprintf(&lines, "{\"tenant\":\"t%d\",\"record\":{\"tier\":\"premium\"}}\n", i)
	}
	dir := t.TempDir()
	file, undo := filepath.Join(dir, "records"), filepath.Join(dir, "before")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &importFlags{part: policy.Rollout{ID: "records", Percent: policy.MaxPercent}, undo: undo}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var puts atomic.Int64
	var unkept sync.Map
	first := watched{s, func(tenant string) {
		if text, err := os.ReadFile(undo); err != nil || !strings.Contains(string(text), `{"tenant":"`+tenant+`","record":{}}`+"\n") {
			unkept.Store(tenant, true)
		}
		if puts.Add(1) == ended {
			end()
		}
	}}
	if _, err := importFile(ctx, &cobra.Command{}, first, file, f); err == nil {
		t.Error("an import that was ended says that all is well")
	}
	unkept.Range(func(tenant, _ any) bool {
		t.Errorf("tenant %s was changed before what it had was kept", tenant)
		return false
	})
	did, err := s.CountRecords(t.Context())
	if err != nil || did == 0 || did >= records {
		t.Fatalf("%d stored, %v", did, err)
	}
	v, err := importFile(t.Context(), &cobra.Command{}, s, file, f)
	if want := (importView{Records: records, Stored: records - did, Same: did}); err != nil || v != want {
		t.Errorf("%+v, %v, want %+v", v, err, want)
	}
	if text, err := os.ReadFile(undo); err != nil || strings.Count(string(text), "\n") != records {
		t.Errorf("kept is %d, %v", strings.Count(string(text), "\n"), err)
	}
}
