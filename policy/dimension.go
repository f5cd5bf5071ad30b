package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/admission"
)

// DimensionRules are limits beside the hierarchy of tenants: of each value that one dimension of requests has, as a user, an address or a route.
type DimensionRules struct {
	// Limit is that of each value: they share the figures, not the tokens. The zero Limit says that there is none.
	Limit admission.Limit
	// Tiers are limits in its place for requests of tenants of a tier, by the tier's name: values have buckets of their own there.
	Tiers map[string]admission.Limit
	// Keys are limits of single values, whatever the tier, by what Key makes of the value, up to MaxDimensionKeys.
	Keys map[string]admission.Limit
	// By has the values be addresses that are counted by their prefix, of so many bits of IPv4 and of IPv6, as in {"/24", "/64"}; nil takes values as
	// they are.
	By []string
	// MaxKeys is how many values may have buckets that are not full, 1 to MaxDimensionMaxKeys, of all and of each tier with a limit of its own; zero
	// means DefaultMaxKeys. Values beyond that share one bucket, until others are full.
	MaxKeys int
}

// Bounds of dimensions.
const (
	// MaxDimensions is how many a policy may have, and MaxDimensionName how many bytes the name of one may have, with that of a tier for which
	// it has a limit.
	MaxDimensions    = 64
	MaxDimensionName = 60
	// MaxAlso is how many a request may name.
	MaxAlso = 4
	// MaxDimensionKeys is how many values may have limits of their own.
	MaxDimensionKeys    = 1000
	DefaultMaxKeys      = 100_000
	MaxDimensionMaxKeys = 10_000_000
	// MaxDimensionValue is the longest value, in bytes. One above plainValue is hashed.
	MaxDimensionValue = 4096
	plainValue        = 64
)

type dimensionJSON struct {
	Limit   *limitJSON           `json:"limit,omitempty"`
	Tiers   map[string]limitJSON `json:"tiers,omitempty"`
	Keys    map[string]limitJSON `json:"keys,omitempty"`
	By      []string             `json:"by,omitempty"`
	MaxKeys int                  `json:"max_keys,omitempty"`
}

func (d DimensionRules) wire() dimensionJSON {
	w := dimensionJSON{By: d.By, MaxKeys: d.MaxKeys}
	if d.Limit != (admission.Limit{}) {
		w.Limit = newLimitJSON(d.Limit)
	}
	w.Tiers = convert(d.Tiers, func(_ string, l admission.Limit) limitJSON { return *newLimitJSON(l) })
	w.Keys = convert(d.Keys, func(_ string, l admission.Limit) limitJSON { return *newLimitJSON(l) })
	return w
}

// dimension returns what was written, and adds what cannot be read to bad. at is the path to it.
func (w dimensionJSON) dimension(at string, bad *problems) DimensionRules {
	d := DimensionRules{By: w.By, MaxKeys: w.MaxKeys}
	if w.Limit != nil {
		if d.Limit = w.Limit.limit(at+".limit", bad); d.Limit == (admission.Limit{}) {
			bad.field(at+".limit.tokens", "0", `1 to 1000000000; for no limit "enabled": false, or leave "limit" out`)
		}
	}
	d.Tiers = convert(w.Tiers, func(tier string, l limitJSON) admission.Limit { return l.limit(at+".tiers."+tier, bad) })
	d.Keys = convert(w.Keys, func(key string, l limitJSON) admission.Limit { return l.limit(at+".keys."+key, bad) })
	return d
}

func (d DimensionRules) withDefaults() DimensionRules {
	d.Limit, d.Tiers, d.Keys, d.By = withBurst(d.Limit), withBursts(d.Tiers), withBursts(d.Keys), slices.Clone(d.By)
	d.MaxKeys = cmp.Or(d.MaxKeys, DefaultMaxKeys)
	return d
}

func dimensionsWithDefaults(all map[string]DimensionRules) map[string]DimensionRules {
	all = maps.Clone(all)
	for name, d := range all {
		all[name] = d.withDefaults()
	}
	return all
}

func (p Policy) validateDimensions(bad *problems) {
	if n := len(p.Dimensions); n > MaxDimensions {
		bad.field("dimensions", strconv.Itoa(n)+" names", "up to "+strconv.Itoa(MaxDimensions))
	}
	for _, name := range sortedKeys(p.Dimensions) {
		d, at := p.Dimensions[name], "dimensions."+name
		if admission.ValidateName("dimension", name, true) != nil || strings.ContainsAny(name, "@/") || len(name) > MaxDimensionName {
			bad.field("dimensions", strconv.Quote(name), fmt.Sprintf("names of 1-%d bytes of [A-Za-z0-9._-]", MaxDimensionName))
		}
		if d.Limit != (admission.Limit{}) {
			bad.add(d.Limit.Validate(at + ".limit"))
		}
		for _, tier := range sortedKeys(d.Tiers) {
			if _, ok := p.Tiers[tier]; !ok {
				bad.field(at+".tiers", strconv.Quote(tier), "one of "+quoteNames(sortedKeys(p.Tiers)))
			}
			if len(name)+len(tier) > MaxDimensionName {
				bad.field(at+".tiers", strconv.Quote(tier), fmt.Sprintf("a name that has %d bytes at most with that of the dimension", MaxDimensionName))
			}
			bad.add(d.Tiers[tier].Validate(at + ".tiers." + tier))
		}
		by, err := d.bits(at)
		bad.add(err)
		if n := len(d.Keys); n > MaxDimensionKeys {
			bad.field(at+".keys", strconv.Itoa(n)+" values", "up to "+strconv.Itoa(MaxDimensionKeys))
		}
		for _, key := range sortedKeys(d.Keys) {
			if made, wrong := by.key(at+".keys", "", key); err == nil && (wrong != nil || made != key) {
				bad.field(at+".keys", strconv.Quote(key), "a value as it is counted, "+cmp.Or(made, "a prefix"))
			}
			bad.add(d.Keys[key].Validate(at + ".keys." + key))
		}
		bad.integer(at+".max_keys", int64(d.MaxKeys), 1, MaxDimensionMaxKeys)
	}
}

// prefixes are by how many bits addresses of IPv4 and of IPv6 are counted; zero for values that are none.
type prefixes struct{ four, six int }

func (d DimensionRules) bits(at string) (by prefixes, err error) {
	if len(d.By) == 0 {
		return by, nil
	}
	if len(d.By) == 2 {
		by.four, by.six = prefixBits(d.By[0], 32), prefixBits(d.By[1], 128)
	}
	if by.four == 0 || by.six == 0 {
		return prefixes{}, &admission.FieldError{Field: at + ".by", Value: quoteNames(d.By), Allowed: `the bits of IPv4 and of IPv6, as in ["/24", "/64"]: "/1" to "/32" and "/1" to "/128"`}
	}
	return by, nil
}

func prefixBits(text string, most int) int {
	bits, err := strconv.Atoi(strings.TrimPrefix(text, "/"))
	if err != nil || !strings.HasPrefix(text, "/") || bits < 1 || bits > most {
		return 0
	}
	return bits
}

// key returns the name under which a value is counted; field and name, one behind the other, name it in errors. It allocates nothing for a value that is a name of up to plainValue bytes.
func (by prefixes) key(field, name, value string) (string, error) {
	switch {
	case by.four > 0:
		return by.prefix(field+name, value)
	case value == "" || len(value) > MaxDimensionValue:
		return "", &admission.FieldError{Field: field + name, Value: fmt.Sprintf("%d bytes", len(value)), Allowed: fmt.Sprintf("1 to %d bytes", MaxDimensionValue)}
	case len(value) <= plainValue && isName(value):
		return value, nil
	}
	sum := sha256.Sum256([]byte(value))
	return "key-" + hex.EncodeToString(sum[:16]), nil
}

// isName reports whether a value is made of what names are.
func isName(value string) bool {
	for i := range len(value) {
		if !inNames[value[i]] {
			return false
		}
	}
	return true
}

var inNames = func() (all [256]bool) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@/-") {
		all[c] = true
	}
	return all
}()

// prefix returns the name of an address' prefix: its usual text, with "-" for each ":".
func (by prefixes) prefix(field, value string) (string, error) {
	text, _, _ := strings.Cut(strings.ReplaceAll(value[:min(len(value), plainValue)], "-", ":"), "/")
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return "", &admission.FieldError{Field: field, Value: strconv.Quote(value[:min(len(value), plainValue)]), Allowed: "an IP address"}
	}
	bits := by.six
	if addr = addr.Unmap().WithZone(""); addr.Is4() {
		bits = by.four
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return "", fmt.Errorf("prefix of %s: %w", addr, err)
	}
	return strings.ReplaceAll(prefix.String(), ":", "-"), nil
}

// dimension is one prepared for lookups.
type dimension struct {
	name string
	by   prefixes
	// owner is what the scopes of its values begin with, and owners the same by tier, where that has a limit of its own.
	owner  string
	owners map[string]string
	keys   map[string]admission.Limit
}

// dimensionOwner is what values have that have no limit of their own.
type dimensionOwner struct {
	of      *dimension
	limit   admission.Limit
	maxKeys int
}

func (c *Compiled) resolveDimensions(all map[string]DimensionRules) {
	if len(all) == 0 {
		return
	}
	c.dimensionOwners = map[string]dimensionOwner{}
	for _, name := range sortedKeys(all) {
		rules := all[name]
		by, _ := rules.bits(name)
		d := &dimension{name: name, by: by, owner: admission.DimensionMark + name, owners: map[string]string{}, keys: rules.Keys}
		c.dimensions = append(c.dimensions, d)
		own := func(owner string, limit admission.Limit) {
			if limit.Tokens == 0 {
				limit = noLimit
			}
			c.dimensionOwners[owner] = dimensionOwner{d, limit, rules.MaxKeys}
		}
		own(d.owner, rules.Limit)
		for tier, limit := range rules.Tiers {
			d.owners[tier] = d.owner + "@" + tier
			own(d.owners[tier], limit)
		}
	}
}

// Dimension returns owner and key of the scope that the value of a dimension has, which is "OWNER:KEY", for a request of a tenant or of none. A value
// that is a name of up to 64 bytes is its key; others are hashed, and addresses are cut to their prefix. The error is a *headgate.FieldError for
// a dimension that the policy does not declare, and for a value that is none.
func (c *Compiled) Dimension(name, value, tenant string) (owner, key string, err error) {
	var d *dimension
	for _, one := range c.dimensions { // They are few: a map takes longer.
		if one.name == name {
			d = one
			break
		}
	}
	if d == nil {
		return "", "", &admission.FieldError{Field: "also", Value: strconv.Quote(name), Allowed: "dimensions that the policy declares: " + cmp.Or(quoteNames(c.Dimensions()), "none")}
	}
	if key, err = d.by.key("also.", name, value); err != nil {
		return "", "", err
	}
	owner = d.owner
	if len(d.owners) > 0 && tenant != "" {
		if _, own := d.keys[key]; !own {
			owner = cmp.Or(d.owners[c.viewOf(tenant).tier], owner)
		}
	}
	return owner, key, nil
}

// DimensionTiered reports whether the limits of a dimension's values depend on the tier of a request's tenant.
func (c *Compiled) DimensionTiered(name string) bool {
	return slices.ContainsFunc(c.dimensions, func(d *dimension) bool { return d.name == name && len(d.owners) > 0 })
}

// Dimensions returns the names of those that the policy declares, in order.
func (c *Compiled) Dimensions() (names []string) {
	for _, d := range c.dimensions {
		names = append(names, d.name)
	}
	return names
}

// DimensionLimits returns the limits of a scope "OWNER:KEY" of a dimension: at LevelGlobal that of all, which is none of its own, at LevelQueue
// that of the key, and at LevelTenant, where there may be no more than maxKeys, that of the one bucket which keys beyond these share. A
// maxKeys of zero is a key with a limit of its own, which always has its bucket. ok is false where the policy has no such dimension.
func (c *Compiled) DimensionLimits(owner, key string) (limits Limits, maxKeys int, ok bool) {
	limits = Limits{c.global, noLimit, noLimit, noLimit}
	own, ok := c.dimensionOwners[owner]
	if !ok {
		return limits, 0, false
	}
	if limit, named := own.of.keys[key]; named && owner == own.of.owner {
		limits[admission.LevelQueue] = limit
		return limits, 0, true
	}
	limits[admission.LevelTenant], limits[admission.LevelQueue] = own.limit, own.limit
	return limits, own.maxKeys, true
}

// DimensionLimit returns the limit in force at a scope of a dimension, "+NAME:KEY" or "+NAME@TIER:KEY", or without a key that of each value; false where
// the policy has none.
func (c *Compiled) DimensionLimit(scope admission.Scope) (admission.Limit, bool) {
	owner, key, _ := strings.Cut(string(scope), ":")
	limits, _, _ := c.DimensionLimits(owner, key)
	limit := limits[admission.LevelQueue]
	return limit, !limit.Disabled
}

// dimensionPath returns where the JSON of a policy has the limit of a scope of a dimension: "+NAME", "+NAME@TIER" or "+NAME:KEY".
func dimensionPath(scope admission.Scope) ([]string, error) {
	owner, key, named := strings.Cut(strings.TrimPrefix(string(scope), admission.DimensionMark), ":")
	name, tier, tiered := strings.Cut(owner, "@")
	if name == "" || tiered && (tier == "" || named) || named && (key == "" || !isName(key)) {
		return nil, &admission.FieldError{Field: "scope", Value: strconv.Quote(string(scope)), Allowed: "+DIMENSION, +DIMENSION@TIER or +DIMENSION:KEY"}
	}
	switch {
	case named:
		return []string{"dimensions", name, "keys", key}, nil
	case tiered:
		return []string{"dimensions", name, "tiers", tier}, nil
	}
	return []string{"dimensions", name, "limit"}, nil
}

// ownDimension returns the limit that the policy has for a scope of a dimension itself.
func (p Policy) ownDimension(scope admission.Scope) (limit admission.Limit, found bool, err error) {
	path, err := dimensionPath(scope)
	if err != nil {
		return limit, false, err
	}
	d := p.Dimensions[path[1]]
	switch path[2] {
	case "keys":
		limit, found = d.Keys[path[3]]
	case "tiers":
		limit, found = d.Tiers[path[3]]
	default:
		limit, found = d.Limit, d.Limit != admission.Limit{}
	}
	return limit, found, nil
}

// DimensionClause returns the rule that decides the limit of a scope of a dimension.
func (p Policy) DimensionClause(scope admission.Scope) Clause {
	path, err := dimensionPath(scope)
	if err != nil {
		return Clause{}
	}
	if _, found, _ := p.ownDimension(scope); !found && path[2] == "keys" {
		path = []string{"dimensions", path[1], "limit"}
	}
	switch d, declared := p.Dimensions[path[1]]; {
	case !declared || path[2] == "limit" && d.Limit == (admission.Limit{}):
		return Clause{}
	case path[2] == "keys":
		return Clause{"override of " + string(scope), path}
	case path[2] == "tiers":
		return Clause{"dimension " + path[1] + " of tier " + path[3], path}
	}
	return Clause{"dimension " + path[1], path}
}
