package api

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/admission"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestATraceGoesOnInTheJob(t *testing.T) {
	t.Parallel()
	full := map[string]string{}
	for i := range admission.MaxHeaders {
		full[fmt.Sprintf("h%d", i)] = "v"
	}
	blue := map[string]string{"color": "blue"}
	for name, row := range map[string]struct {
		own    map[string]string
		header []string // traceparent, tracestate
		want   map[string]string
	}{
		"none":                        {blue, []string{"", "x=1"}, blue},
		"one beside others":           {blue, []string{parent, ""}, map[string]string{"color": "blue", traceParent: parent}},
		"one with its state":          {nil, []string{parent, "x=1,y=2"}, map[string]string{traceParent: parent, traceState: "x=1,y=2"}},
		"the job's own":               {map[string]string{traceParent: "mine"}, []string{parent, "x=1"}, map[string]string{traceParent: "mine"}},
		"no trace":                    {blue, []string{"00-zz-01", "x=1"}, blue},
		"no room for one more header": {full, []string{parent, ""}, full},
		"no room for so many bytes":   {blue, []string{parent, strings.Repeat("x", admission.MaxHeaderBytes)}, blue},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := admission.NewJob("acme", "mail", "send", nil)
			job.Headers = maps.Clone(row.own)
			own := job.Headers
			addTrace(&job, http.Header{"Traceparent": {row.header[0]}, "Tracestate": {row.header[1]}})
			if !maps.Equal(job.Headers, row.want) || !maps.Equal(own, row.own) {
				t.Errorf("headers are %v, want %v; those of the call are %v", job.Headers, row.want, own)
			}
		})
	}
}
