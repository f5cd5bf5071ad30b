package rls

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
)

// Mapping says what descriptors are. It does not change once it was read.
type Mapping struct {
	Domains map[string]Domain `yaml:"domains"`
}

// Domain is what Envoy's filter names so.
type Domain struct {
	// Shadow asks, charges and counts, and refuses nothing.
	Shadow bool             `yaml:"shadow"`
	Rules  []DescriptorRule `yaml:"rules"`
}

// DescriptorRule is for descriptors with the very entries of Match, in order. The first of a domain that matches counts.
type DescriptorRule struct {
	Match []Match `yaml:"match"`
	// Tenant and Queue are names, TenantFrom and QueueFrom keys of the entries whose values are; a value that is no name becomes "key-" and 32 digits of its
	// SHA-256. With HashTenant every value does. Class is a class of the queue.
	Tenant     string             `yaml:"tenant"`
	TenantFrom string             `yaml:"tenant_from"`
	HashTenant bool               `yaml:"hash_tenant"`
	Queue      string             `yaml:"queue"`
	QueueFrom  string             `yaml:"queue_from"`
	Class      admission.Priority `yaml:"class"`
	// Also are dimensions of the policy, each the key of the entry whose value it has, up to limiter.MaxAlso. A value above policy.MaxDimensionValue is
	// hashed as that of a tenant is.
	Also   map[string]string `yaml:"also"`
	Shadow bool              `yaml:"shadow"`
}

// Match is an entry; an empty Value is any.
type Match struct {
	Key   string `yaml:"key"`
	Value string `yaml:"value"`
}

const maxRules = 1000

// ReadMapping reads a mapping in YAML or JSON. The error joins one *headgate.FieldError for each bad field.
func ReadMapping(text []byte) (*Mapping, error) {
	m := &Mapping{}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(m); err != nil {
		return nil, fmt.Errorf("read mapping: %w", err)
	}
	var bad []error
	if len(m.Domains) == 0 {
		bad = append(bad, &admission.FieldError{Field: "domains", Value: "none", Allowed: "one or more"})
	}
	for name, domain := range m.Domains {
		if len(domain.Rules) > maxRules {
			bad = append(bad, &admission.FieldError{Field: "rules of " + name, Value: strconv.Itoa(len(domain.Rules)), Allowed: "up to " + strconv.Itoa(maxRules)})
		}
		for i := range domain.Rules {
			if err := domain.Rules[i].validate(); err != nil {
				bad = append(bad, fmt.Errorf("domain %s, rule %d: %w", name, i+1, err))
			}
		}
	}
	if err := errors.Join(bad...); err != nil {
		return nil, fmt.Errorf("read mapping: %w", err)
	}
	return m, nil
}

func (r *DescriptorRule) validate() error {
	var bad []error
	field := func(ok bool, name, value, allowed string) {
		if !ok {
			bad = append(bad, &admission.FieldError{Field: name, Value: strconv.Quote(value), Allowed: allowed})
		}
	}
	field(len(r.Match) > 0 && len(r.Match) <= maxEntries, "match", strconv.Itoa(len(r.Match)), fmt.Sprintf("1 to %d entries", maxEntries))
	field(r.TenantFrom == "" || r.has(r.TenantFrom), "tenant_from", r.TenantFrom, "a key of match")
	field(r.QueueFrom == "" || r.has(r.QueueFrom), "queue_from", r.QueueFrom, "a key of match")
	field(r.Tenant == "" || r.TenantFrom == "" && admission.ValidateTenant(r.Tenant) == nil, "tenant", r.Tenant, "a name, without tenant_from")
	field(r.Queue == "" || r.QueueFrom == "" && admission.ValidateName("queue", r.Queue, true) == nil, "queue", r.Queue, "a name, without queue_from")
	queued := r.Queue != "" || r.QueueFrom != ""
	field(!queued || r.Tenant != "" || r.TenantFrom != "", "queue", r.Queue+r.QueueFrom, "none without a tenant")
	field(r.Class == "" || queued && admission.ValidateName("class", string(r.Class), true) == nil, "class", string(r.Class), "a class, with a queue")
	field(len(r.Also) <= limiter.MaxAlso, "also", strconv.Itoa(len(r.Also))+" dimensions", fmt.Sprintf("up to %d", limiter.MaxAlso))
	for name, key := range r.Also {
		field(name != "" && r.has(key), "also."+name, key, "a key of match")
	}
	return errors.Join(bad...)
}

func (r *DescriptorRule) has(key string) bool {
	for _, m := range r.Match {
		if m.Key == key {
			return true
		}
	}
	return false
}

// rule returns the first that matches, or nil.
func (d *Domain) rule(entries []Match) *DescriptorRule {
next:
	for i := range d.Rules {
		r := &d.Rules[i]
		if len(r.Match) != len(entries) {
			continue
		}
		for j, m := range r.Match {
			if m.Key != entries[j].Key || m.Value != "" && m.Value != entries[j].Value {
				continue next
			}
		}
		return r
	}
	return nil
}

// request is what a descriptor that matches asks of the limiter.
func (r *DescriptorRule) request(entries []Match, cost uint64) limiter.Request {
	asked := limiter.Request{Tenant: r.Tenant, Queue: r.Queue, Class: r.Class, Cost: admission.Tokens(min(cost, uint64(admission.MaxCost)+1))} //nolint:gosec // bounded
	for _, e := range entries {
		if e.Key == r.TenantFrom && asked.Tenant == "" {
			asked.Tenant = e.Value
			if r.HashTenant || admission.ValidateTenant(e.Value) != nil {
				asked.Tenant = hashed(e.Value)
			}
		}
		if e.Key == r.QueueFrom && asked.Queue == "" {
			asked.Queue = e.Value
			if admission.ValidateName("queue", e.Value, true) != nil {
				asked.Queue = hashed(e.Value)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Also)) {
		for _, e := range entries {
			if e.Key == r.Also[name] && e.Value != "" {
				value := e.Value
				if len(value) > policy.MaxDimensionValue { // An error would let the call through: clients choose values.
					value = hashed(value)
				}
				asked.Also = append(asked.Also, limiter.Dimension{Name: name, Value: value})
				break
			}
		}
	}
	return asked
}

// hashed is httplimit.KeyName.
func hashed(value string) string {
	sum := sha256.Sum256([]byte(value))
	return "key-" + hex.EncodeToString(sum[:16])
}
