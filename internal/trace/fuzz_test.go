package trace

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/admission"
)

// FuzzRead: whatever a file holds, each of its rows is a job within the bounds or is reported, and they are in order.
func FuzzRead(f *testing.F) {
	f.Add(header+good, 0)
	f.Add(header+good+strings.Replace(good, "2024-11-15 16:57:50", "1731689870", 1), 1)
	f.Add("\ufeff"+header+strings.Replace(good, "1.0,30.0", "1e300,1e300", 1), 0)
	f.Add(header+strings.Replace(good, "32.0", "NaN", 1)+strings.Replace(good, "63.0", "-1", 1)+"\"", 0)
	f.Add("", 0)
	f.Add("a,a\n1", -1)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		read, err := Read(strings.NewReader(text), Columns{}, limit)
		if err != nil {
			return
		}
		if n := len(read.Rows) + len(read.Bad); limit > 0 && n > limit {
			t.Errorf("%d rows of %d", n, limit)
		}
		for i, row := range read.Rows {
			if admission.ValidateTenant(row.Tenant) != nil || admission.ValidateName("type", row.Type, false) != nil || admission.ValidateName("downstream", row.Downstream, false) != nil {
				t.Errorf("names of %+v", row)
			}
			if row.Cost < 1 || row.Cost > admission.MaxCost || row.RunTime < 0 || row.RunTime > maxRunTime || row.Bytes < 0 || row.Bytes > admission.DefaultMaxPayload {
				t.Errorf("bounds of %+v", row)
			}
			if row.Line < 2 || i > 0 && row.Arrival.Before(read.Rows[i-1].Arrival) {
				t.Errorf("row %d: %+v", i, row)
			}
		}
		for _, bad := range read.Bad {
			if bad.Line < 2 || bad.Err == nil {
				t.Errorf("%+v", bad)
			}
		}
	})
}
