package access

import (
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
)

// Role is what a principal may do. Viewer, Operator and Admin include those before them, and Operator includes Producer and Worker,
// which include nothing but what is for anyone. The zero Role is none: nothing is allowed to it and no route may ask for it.
type Role int

// The roles.
const (
	// Anyone needs no credential.
	Anyone Role = iota + 1
	// Viewer sees.
	Viewer
	// Operator enqueues, asks for decisions, pauses, cancels and redrives.
	Operator
	// Admin also ends things for good and resets limits.
	Admin
	// Producer enqueues and asks for decisions, and sees nothing.
	Producer
	// Worker has sessions of a worker, and sees no job but those it is handed.
	Worker
)

var roleNames = map[Role]string{Anyone: "anyone", Viewer: "viewer", Operator: "operator", Admin: "admin", Producer: "producer", Worker: "worker"}

// RoleNames is how errors and help name the roles that a credential may have.
const RoleNames = "viewer, operator, admin, producer or worker"

// String returns the role's name, "none" for the zero Role.
func (r Role) String() string {
	if name, ok := roleNames[r]; ok {
		return name
	}
	return "none"
}

// ParseRole reads the role of a credential, one of RoleNames.
func ParseRole(name string) (Role, error) {
	for _, role := range []Role{Viewer, Operator, Admin, Producer, Worker} {
		if role.String() == name {
			return role, nil
		}
	}
	return 0, &admission.FieldError{Field: "role", Value: strconv.Quote(clip(name)), Allowed: RoleNames}
}

// clip shortens what is not worth printing whole.
func clip(text string) string {
	if len(text) > admission.MaxNameLength {
		return text[:admission.MaxNameLength]
	}
	return text
}

// Principal is who calls.
type Principal struct {
	// Name is that of the key, or the token's issuer and subject.
	Name string
	Role Role
	// Tenant is the only tenant that the principal may see and touch; empty means all.
	Tenant string
	// Expires is when the credential ends, zero for never.
	Expires time.Time
}

// May reports whether the principal's role includes another. The zero Role includes none and is included in none.
func (p Principal) May(role Role) bool {
	switch {
	case role == 0 || p.Role == 0:
		return false
	case role == p.Role || role == Anyone:
		return true
	case p.Role == Producer || p.Role == Worker:
		return false
	case role == Producer || role == Worker:
		return p.Role >= Operator
	}
	return p.Role >= role
}

// Caller is what calls are counted by: the name within the tenant, so that the keys that follow each other under one name are one
// caller, and those of two tenants two.
func (p Principal) Caller() string { return p.Tenant + " " + p.Name } // A tenant's name has no space.

// String names the principal for logs.
func (p Principal) String() string {
	if p.Tenant == "" {
		return p.Name
	}
	return fmt.Sprintf("%s (tenant %s)", p.Name, p.Tenant)
}
