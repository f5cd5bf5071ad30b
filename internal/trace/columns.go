package trace

import (
	"errors"
	"fmt"
	"strings"
)

// Columns names the columns to read. An empty name means the default.
type Columns struct {
	Arrival, Type, Status, RunTime, Tenant, Prompt, NegativePrompt, Images, Steps, Downstream string
}

// Column is one of the columns, for those who make flags of them.
type Column struct {
	// Name is what the column is called here, "tenant" for one.
	Name string
	// Default is its name in the file unless told otherwise.
	Default string
	// Meaning says what becomes of it.
	Meaning string
	// Otherwise stands in every row of a file without such a column; a column that must be there has none.
	Otherwise *string
	// Value is where its name in the file is kept; empty means Default.
	Value *string
}

// All lists the columns in the order of the package comment.
func (c *Columns) All() []Column {
	return []Column{
		{"arrival", "gmt_create", "when the job is enqueued", nil, &c.Arrival},
		{"type", "predict_type", "type of the job", new("job"), &c.Type},
		{"status", "predict_status", "FAILED makes the handler fail", new(""), &c.Status},
		{"run-time", "exec_time_seconds", "how long the handler works, in seconds, or 250ms", new("0"), &c.RunTime},
		{"tenant", "groupId", "tenant", nil, &c.Tenant},
		{"prompt", "prompt_length", "payload size in bytes, first part", new("0"), &c.Prompt},
		{"negative-prompt", "negative_prompt_length", "payload size in bytes, second part", new("0"), &c.NegativePrompt},
		{"images", "num_images_per_prompt", "cost is images x steps / 30", new("1"), &c.Images},
		{"steps", "num_inference_steps", "cost is images x steps / 30", new("30"), &c.Steps},
		{"downstream", "checkpoint_model_version_id", "what the handler calls, the breaker's key", new(""), &c.Downstream},
	}
}

// cell is where a column is in a record, or what stands for it in all of them.
type cell struct {
	at        int
	otherwise *string
}

func (c cell) of(record []string) string {
	if c.otherwise != nil {
		return *c.otherwise
	}
	return strings.TrimSpace(record[c.at])
}

// place says which cell of a record each column is.
type place struct {
	arrival, kind, status, runTime, tenant, prompt, negative, images, steps, downstream cell
}

// find looks the columns up in the header of the file and reports every missing one at once: those that must be there, and those that
// were named.
func (c *Columns) find(header []string) (place, error) {
	places, err := findAll(c.All(), header)
	if err != nil {
		return place{}, err
	}
	return place{
		arrival: places[0], kind: places[1], status: places[2], runTime: places[3], tenant: places[4],
		prompt: places[5], negative: places[6], images: places[7], steps: places[8], downstream: places[9],
	}, nil
}

// findAll returns where columns are, in their order.
func findAll(columns []Column, header []string) ([]cell, error) {
	at := make(map[string]int, len(header))
	for i, name := range header {
		at[strings.TrimSpace(name)] = i
	}
	places := make([]cell, len(columns))
	var missing []error
	for i, column := range columns {
		name := *column.Value
		if name == "" {
			name = column.Default
		}
		index, ok := at[name]
		if !ok && name == column.Default && column.Otherwise != nil {
			places[i].otherwise = column.Otherwise
			continue
		}
		if !ok {
			missing = append(missing, fmt.Errorf("no column %q: name the right one with --column-%s", name, column.Name))
			continue
		}
		places[i].at = index
	}
	if len(missing) > 0 {
		missing = append(missing, fmt.Errorf("the file has: %s", strings.Join(header, ", ")))
		return nil, errors.Join(missing...)
	}
	return places, nil
}
