package shown

import "github.com/headgate/headgate/internal/doctor"

// Report is what the doctor found.
type Report struct {
	// Health is the worst.
	Health   doctor.Health `json:"health"`
	Findings []Finding     `json:"findings"`
}

// Finding is one thing of it.
type Finding struct {
	Name   string        `json:"name"`
	Health doctor.Health `json:"health"`
	Text   string        `json:"text"`
	Do     string        `json:"do,omitempty"`
}

// ReportOf shows a report.
func ReportOf(r doctor.Report) Report {
	v := Report{Health: r.Worst(), Findings: []Finding{}}
	for _, f := range r.Findings {
		v.Findings = append(v.Findings, Finding(f))
	}
	return v
}
