package shown

import (
	"context"
	"encoding/json"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Record is what a tenant has of its own beside the policy.
type Record struct {
	Tenant string `json:"tenant"`
	// Version is another with each change: an edit names the one that it was made from.
	Version int64 `json:"version"`
	// Record is as it is put.
	Record json.RawMessage `json:"record"`
}

// Records is a page of them, in no order.
type Records struct {
	Records []Record `json:"records"`
	// Cursor continues the list; empty where it ends.
	Cursor string `json:"cursor,omitempty"`
}

// RecordOf shows a record; ok is false for none.
func RecordOf(r store.TenantRecord) (v Record, ok bool) {
	return Record{r.Tenant, r.Version, json.RawMessage(r.Text)}, r.Version != policy.NoRecord
}

// ReadRecords shows a page of records.
func ReadRecords(ctx context.Context, s store.Deployment, q store.RecordsQuery) (Records, error) {
	page, err := s.RecordsPage(ctx, q)
	if err != nil {
		return Records{}, err
	}
	v := Records{Records: make([]Record, 0, len(page.Records)), Cursor: page.Next}
	for _, r := range page.Records {
		one, _ := RecordOf(r)
		v.Records = append(v.Records, one)
	}
	return v, nil
}
