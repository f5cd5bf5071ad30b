package shown

import "github.com/headgate/headgate/store"

// Report is what the doctor found.
type Report struct {
	// Health is the worst.
	Health   store.Health `json:"health"`
	Findings []Finding    `json:"findings"`
}

// Finding is one thing of it.
type Finding struct {
	Name   string       `json:"name"`
	Health store.Health `json:"health"`
	Text   string       `json:"text"`
	Do     string       `json:"do,omitempty"`
}

// ReportOf shows a report.
func ReportOf(r store.Report) Report {
	v := Report{Health: r.Worst(), Findings: []Finding{}}
	for _, f := range r.Findings {
		v.Findings = append(v.Findings, Finding(f))
	}
	return v
}
