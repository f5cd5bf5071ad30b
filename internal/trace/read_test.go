package trace

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

const header = "gmt_create,predict_type,predict_status,exec_time_seconds,groupId,prompt_length,negative_prompt_length," +
	"num_images_per_prompt,num_inference_steps,checkpoint_model_version_id,num_lora\n"

const good = "2024-11-15 16:57:50,TXT_2_IMG,SUCCEED,32.0,G0000,63.0,26.0,1.0,30.0,M0000,0\n"

func TestRowsBecomeJobs(t *testing.T) {
	t.Parallel()
	base := Row{
		Line: 2, Arrival: time.Date(2024, 11, 15, 16, 57, 50, 0, time.UTC), Type: "TXT_2_IMG", RunTime: 32 * time.Second,
		Tenant: "G0000", Downstream: "M0000", Cost: 1, Bytes: 89,
	}
	for name, test := range map[string]struct {
		line string
		want func(*Row)
	}{
		"a row as it is":                  {good, func(*Row) {}},
		"a failed one fails":              {strings.Replace(good, "SUCCEED", "FAILED", 1), func(r *Row) { r.Fails = true }},
		"a pending one does not":          {strings.Replace(good, "SUCCEED", "PENDING", 1), func(*Row) {}},
		"no negative prompt is 0 bytes":   {strings.Replace(good, "26.0", "", 1), func(r *Row) { r.Bytes = 63 }},
		"cost is rounded up":              {strings.Replace(good, "1.0,30.0", "3.0,25.0", 1), func(r *Row) { r.Cost = 3 }},
		"cost is at least 1":              {strings.Replace(good, "1.0,30.0", "0,4", 1), func(*Row) {}},
		"run time has fractions":          {strings.Replace(good, "32.0", "0.25", 1), func(r *Row) { r.RunTime = 250 * time.Millisecond }},
		"arrival in RFC 3339":             {strings.Replace(good, "2024-11-15 16:57:50", "2024-11-15T16:57:50Z", 1), func(*Row) {}},
		"arrival in seconds":              {strings.Replace(good, "2024-11-15 16:57:50", "1731689870", 1), func(r *Row) { r.Arrival = time.Unix(1731689870, 0).UTC() }},
		"blanks around cells do not mind": {strings.ReplaceAll(good, ",", " , "), func(*Row) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read, err := Read(strings.NewReader(header+test.line), Columns{}, 0)
			if err != nil {
				t.Fatal(err)
			}
			want := base
			test.want(&want)
			if len(read.Bad) > 0 || len(read.Rows) != 1 || read.Rows[0] != want {
				t.Errorf("got %+v, want %+v", *read, want)
			}
		})
	}
}

func TestBadRowsAreReported(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ line, want string }{
		"no model and no numbers": {
			"2024-11-26 22:50:35,TXT_2_IMG,PENDING,0.0,G0325,,,,,,0", "no downstream; no images; no steps",
		},
		"a cell too few":    {"2024-11-26 22:50:35,TXT_2_IMG", "2 cells where the header has 11"},
		"no tenant":         {strings.Replace(good, "G0000", "", 1), "no tenant"},
		"a tenant of ours":  {strings.Replace(good, "G0000", "global", 1), `invalid tenant "global": allowed is any name but "global", which is the outermost scope`},
		"a name with blank": {strings.Replace(good, "M0000", "M 1", 1), `invalid downstream "M 1": allowed is 1-128 bytes of [A-Za-z0-9._:@/-]`},
		"no time":           {strings.Replace(good, "2024-11-15 16:57:50", "yesterday", 1), `arrival "yesterday" is not a time such as 2024-11-15 16:57:50`},
		"text for a number": {strings.Replace(good, "32.0", "long", 1), `run time "long" is not a number from 0 to 86400`},
		"NaN":               {strings.Replace(good, "32.0", "NaN", 1), `run time "NaN" is not a number from 0 to 86400`},
		"a negative number": {strings.Replace(good, "63.0", "-1", 1), `prompt "-1" is not a number from 0 to 1048576`},
		"too much work":     {strings.Replace(good, "1.0,30.0", "1000000,31", 1), "cost 1033334 is above 1000000 tokens"},
		"a payload too big": {strings.Replace(good, "63.0,26.0", "1048576,1", 1), "payload of 1048577 bytes is above 1048576"},
		"a broken quote":    {`2024-11-15 16:57:50,"TXT"_2_IMG,SUCCEED,32.0,G0000,63.0,26.0,1.0,30.0,M0000,0`, `extraneous or missing " in quoted-field`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := header + good + strings.TrimSuffix(test.line, "\n") + "\n" + good
			read, err := Read(strings.NewReader(text), Columns{}, 0)
			if err != nil {
				t.Fatal(err)
			}
			if len(read.Rows) != 2 || len(read.Bad) != 1 || read.Bad[0].Line != 3 || read.Bad[0].Err.Error() != test.want {
				t.Errorf("got %d rows and %v, want line 3: %s", len(read.Rows), read.Bad, test.want)
			}
		})
	}
}

func TestColumnsAreFoundByName(t *testing.T) {
	t.Parallel()
	text := "\ufeff" + strings.Replace(header, "groupId", "customer", 1) + good
	_, err := Read(strings.NewReader(text), Columns{}, 0)
	if err == nil || !strings.Contains(err.Error(), `no column "groupId": name the right one with --column-tenant`) {
		t.Errorf("got %v", err)
	}
	read, err := Read(strings.NewReader(text), Columns{Tenant: "customer"}, 0)
	if err != nil || len(read.Rows) != 1 || read.Rows[0].Tenant != "G0000" {
		t.Errorf("got %v, %v", read, err)
	}
	if _, err := Read(strings.NewReader(""), Columns{}, 0); !errors.Is(err, ErrEmpty) {
		t.Errorf("got %v for an empty file", err)
	}
}

// TestAFileOfOnesOwnNeedsTwoColumns: arrival and tenant. The rest has defaults, unless a column was named that is not there.
func TestAFileOfOnesOwnNeedsTwoColumns(t *testing.T) {
	t.Parallel()
	const text = "when,customer,took\n2024-11-15 16:57:50,acme,250ms\n2024-11-15 16:57:51,bolt,1.5\n"
	read, err := Read(strings.NewReader(text), Columns{Arrival: "when", Tenant: "customer", RunTime: "took"}, 0)
	if err != nil || len(read.Bad) != 0 {
		t.Fatal(read, err)
	}
	at := time.Date(2024, 11, 15, 16, 57, 50, 0, time.UTC)
	want := []Row{
		{Line: 2, Arrival: at, Type: "job", RunTime: 250 * time.Millisecond, Tenant: "acme", Cost: 1},
		{Line: 3, Arrival: at.Add(time.Second), Type: "job", RunTime: 1500 * time.Millisecond, Tenant: "bolt", Cost: 1},
	}
	if !slices.Equal(read.Rows, want) {
		t.Errorf("%+v", read.Rows)
	}
	if _, err := Read(strings.NewReader(text), Columns{Tenant: "customer"}, 0); err == nil || !strings.Contains(err.Error(), "--column-arrival") || strings.Contains(err.Error(), "--column-type") {
		t.Errorf("without an arrival: %v", err)
	}
	if _, err := Read(strings.NewReader(text), Columns{Arrival: "when", Tenant: "customer", Type: "kind"}, 0); err == nil || !strings.Contains(err.Error(), `no column "kind"`) {
		t.Errorf("a column that was named: %v", err)
	}
}

func TestRowsAreSortedAndLimited(t *testing.T) {
	t.Parallel()
	at := func(second, tenant string) string {
		return strings.NewReplacer("16:57:50", "16:57:"+second, "G0000", tenant).Replace(good)
	}
	text := header + at("52", "a") + "bad\n" + at("51", "b") + at("52", "c") + at("50", "d")
	read, err := Read(strings.NewReader(text), Columns{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, row := range read.Rows {
		order = append(order, row.Tenant)
	}
	if !slices.Equal(order, []string{"d", "b", "a", "c"}) || read.Span() != 2*time.Second {
		t.Errorf("order %v, span %s", order, read.Span())
	}
	if read, err = Read(strings.NewReader(text), Columns{}, 3); err != nil || len(read.Rows) != 2 || len(read.Bad) != 1 {
		t.Errorf("three rows gave %v, %v", read, err)
	}
	rest, gone := read.Without("M0000")
	if gone != 2 || len(rest.Rows) != 0 || len(rest.Bad) != 1 || rest.Span() != 0 {
		t.Errorf("without the only downstream %d rows left, %d gone", len(rest.Rows), gone)
	}
}
