package policies

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// The kinds of settings, as fragments/settings.lua has them.
const (
	SettingQueue  = "q"
	SettingBound  = "b"
	SettingGate   = "g"
	settingParked = "p"
	settingPress  = "r"
	settingLoad   = "l"
	settingUsage  = "u"
	settingWatch  = "d"
	// settingReserve is kept among the gates.
	settingReserve = "o"
	SettingWeight  = "w"
	settingTiers   = "t"
	settingCaps    = "c"
)

// capsField is the field of the state that has the caps of tiers.
const capsField = "tc"

// dispatchField counts the tenants whose records say how many of their jobs are dispatched a time (fragments/gate.lua); dispatchAt is where Stored reads it.
const (
	dispatchField = "rd"
	dispatchAt    = 3
)

// queueCapsField counts the tenants whose records have caps in single queues (fragments/entry.lua); queueCapsAt is where Stored reads it.
const (
	queueCapsField = "rq"
	queueCapsAt    = 4
)

// usageField is the field of the state that is there while usage is kept.
const usageField = "us"

// SettingKey names a setting.
type SettingKey struct{ Kind, Name string }

// Settings are all that scripts know of a policy, as they have it.
type Settings map[SettingKey]string

// SettingsOf returns those of an update.
func SettingsOf(u *store.PolicyUpdate) Settings {
	all := make(Settings, len(u.Queues)+len(u.Overflows)+len(u.Tiers)+len(u.Caps)+len(u.MaxParked)+len(u.Weights))
	for _, q := range u.Queues {
		all[SettingKey{SettingQueue, q.Queue}] = settingsText(q)
	}
	for _, o := range u.Overflows {
		all[SettingKey{SettingBound, OverflowName(o)}] = overflowsText(o.Overflow, o.Tiers)
	}
	for tenant, tier := range u.Tiers {
		all[SettingKey{SettingBound, ":" + tenant}] = tier
	}
	for _, c := range u.Caps {
		all[SettingKey{SettingGate, string(c.Gate)}] = capText(c)
	}
	for downstream, most := range u.MaxParked {
		all[SettingKey{settingParked, downstream}] = strconv.Itoa(most)
	}
	for _, queue := range u.Pressured {
		all[SettingKey{settingPress, queue}] = "1"
	}
	if u.Load > 0 {
		all[SettingKey{settingLoad, ""}] = strconv.FormatInt(u.Load.Microseconds(), 10)
	}
	if u.Watched {
		all[SettingKey{settingWatch, ""}] = "1"
	}
	if u.Usage {
		all[SettingKey{settingUsage, ""}] = "1"
	}
	for _, r := range u.Reserves {
		all[SettingKey{settingReserve, r.Queue}] = r.String()
	}
	for _, w := range u.Weights {
		text := strconv.FormatInt(int64(w.Weight), 10)
		if w.ByTier {
			text += codec.ByTier
		}
		all[SettingKey{SettingWeight, string(w.Class) + ":" + w.Tenant}] = text
	}
	for _, w := range slices.SortedFunc(slices.Values(u.TierWeights), func(a, b store.TierWeight) int { return strings.Compare(a.Tier, b.Tier) }) {
		all[SettingKey{settingTiers, string(w.Class)}] += fmt.Sprintf(";%s=%d", w.Tier, w.Weight)
	}
	for _, c := range slices.SortedFunc(slices.Values(u.TierCaps), func(a, b store.TierCap) int { return strings.Compare(a.Tier, b.Tier) }) {
		all[SettingKey{settingCaps, ""}] += fmt.Sprintf(";%s=%d", c.Tier, c.Limit)
	}
	return all
}

// CompareKeys orders settings by kind and name.
func CompareKeys(a, b SettingKey) int {
	return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
}

// digest names settings: equal ones have the same.
func (s Settings) digest() string {
	h := sha256.New()
	for _, key := range slices.SortedFunc(maps.Keys(s), CompareKeys) {
		_, _ = h.Write([]byte(key.Kind + key.Name + "\n" + s[key] + "\n"))
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// Instead returns what holds for what has no setting of its own under a key; empty is nothing.
func (s Settings) Instead(key SettingKey) string {
	switch key.Kind {
	case SettingWeight:
		class, _, _ := strings.Cut(key.Name, ":")
		return s[SettingKey{key.Kind, class + ":"}]
	case settingParked:
		return s[SettingKey{key.Kind, ""}]
	case SettingGate:
		switch kind, _ := store.GateName(key.Name).Split(); kind {
		case store.KindTenant, store.KindTenantQueue, store.KindDownstream, store.KindDownstreamRate:
			all := s[SettingKey{key.Kind, store.DefaultGate(store.GateName(key.Name))}]
			if kind == store.KindTenant && all != "" && s[SettingKey{settingCaps, ""}] != "" {
				all += codec.ByTier // As each tenant's is: one whose record names a tier has that one's.
			}
			return all
		}
	case SettingBound:
		if key.isTier() {
			return ""
		}
		_, queue, inQueue := strings.Cut(key.Name, ":")
		if !inQueue {
			return cmp.Or(s[SettingKey{key.Kind, store.Every}], noBound)
		}
		if parts := strings.Split(s[SettingKey{SettingQueue, queue}], "|"); len(parts) > overflowAt && parts[overflowAt] != noBound {
			return parts[overflowAt]
		}
		return cmp.Or(s[SettingKey{key.Kind, store.Every + ":" + store.Every}], noBound)
	}
	return ""
}

// noBound is the text of an Overflow that is none, and overflowAt where it stands in the settings of a queue.
const (
	noBound    = "-"
	overflowAt = 4
)

// isTier reports whether a setting is a tenant's tier.
func (k SettingKey) isTier() bool { return k.Kind == SettingBound && strings.HasPrefix(k.Name, ":") }

// IsGeneral reports whether a setting holds for those that have none of their own: it changes with the version.
func (k SettingKey) IsGeneral() bool {
	switch k.Kind {
	case SettingQueue, settingPress, settingLoad, settingUsage, settingWatch, settingReserve, settingTiers, settingCaps:
		return true
	case SettingWeight:
		return strings.HasSuffix(k.Name, ":")
	case settingParked:
		return k.Name == ""
	case SettingGate:
		return store.GateName(k.Name).OfEach()
	case SettingBound:
		return k.Name == store.Every || k.Name == store.Every+":"+store.Every
	}
	return false
}

// settingMove changes a setting; an empty value takes it away.
type settingMove struct {
	SettingKey

	value, before string
}

// weight is how much of a portion a move is.
func (m settingMove) weight() int {
	if m.Kind == SettingGate || m.Kind == settingReserve {
		return gateWork
	}
	return 1
}

// portionWork bounds what one script changes, so that it is short: so many settings, or a part of that in gates, which cost more
// because each may wake who waits behind it.
const (
	portionWork = 256
	gateWork    = 4
)

// difference is what differs between two policies: what changes before the version does, with it, and after it. Until the version changes
// each tenant has what it had or what it is to have, and so it is afterwards:
//   - one that gets a setting of its own, or another, has it from before on;
//   - one that loses its own has from before on what is then in force for all that have none, and loses it after;
//   - what is in force for those changes with the version, in the same script.
//
// A tenant whose tier and whose tier's bounds both change in more than one script has the new tier's bounds as they were for a moment.
type difference struct{ before, with, after []settingMove }

// changes returns what makes one settings of others.
func changes(from, to Settings) difference {
	var e difference
	for _, key := range slices.SortedFunc(maps.Keys(to), CompareKeys) {
		if from[key] == to[key] {
			continue
		}
		m := settingMove{key, to[key], from[key]}
		if key.IsGeneral() {
			e.with = append(e.with, m)
		} else {
			e.before = append(e.before, m)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(from), CompareKeys) {
		if _, stays := to[key]; stays {
			continue
		}
		gone := settingMove{key, "", from[key]}
		if key.IsGeneral() {
			e.with = append(e.with, gone)
			continue
		}
		if key.isTier() { // Until the version changes its bounds are those of the tier that it had.
			e.after = append(e.after, gone)
			continue
		}
		then := to.Instead(key)
		if then == from.Instead(key) {
			e.before = append(e.before, gone)
			continue
		}
		if then != "" {
			e.before = append(e.before, settingMove{key, then, from[key]})
			gone.before = then
		}
		e.after = append(e.after, gone)
	}
	return e
}

// work is how much of a portion it is in all.
func (e *difference) work() (n int) {
	for _, moves := range [][]settingMove{e.before, e.with, e.after} {
		for _, m := range moves {
			n += m.weight()
		}
	}
	return n
}

// all returns the moves of an edit that one script makes: none is made twice.
func (e *difference) all() []settingMove {
	at := map[SettingKey]int{}
	var moves []settingMove
	for _, m := range slices.Concat(e.before, e.with, e.after) {
		if i, again := at[m.SettingKey]; again {
			moves[i] = m
			continue
		}
		at[m.SettingKey] = len(moves)
		moves = append(moves, m)
	}
	return moves
}

// portions divides moves.
func portions(moves []settingMove) (all [][]settingMove) {
	work := portionWork
	for _, m := range moves {
		if work += m.weight(); work > portionWork {
			all, work = append(all, nil), m.weight()
		}
		all[len(all)-1] = append(all[len(all)-1], m)
	}
	return all
}

// moveArgs are moves as arguments of a script.
func moveArgs(args []any, moves []settingMove) []any {
	for _, m := range moves {
		args = append(args, m.Kind, m.Name, m.value)
	}
	return args
}

// portionText is a portion as fragments/settings.lua reads it; back takes it back.
func portionText(moves []settingMove, back bool) string {
	var text strings.Builder
	for _, m := range moves {
		value := m.value
		if back {
			value = m.before
		}
		text.WriteString(m.Kind + "\n" + m.Name + "\n" + value + "\n")
	}
	return text.String()
}

// Stored reads the settings that scripts have, page by page.
func (s *Policies) Stored(ctx context.Context) (Settings, error) {
	all := Settings{}
	shares, err := s.conn.WholeHash(ctx, s.conn.Partition.Base()+"shares", "")
	if err != nil {
		return nil, err
	}
	moving, err := s.conn.WholeHash(ctx, s.conn.Partition.Base()+"adaptive", "")
	if err != nil {
		return nil, err
	}
	for name := range moving { // Also one whose gate somebody took away.
		all[SettingKey{SettingGate, name}] = ""
	}
	single, err := redisconn.Client(s.conn).HMGet(ctx, s.conn.Partition.State(), "load", "anom", capsField, dispatchField, queueCapsField).Result()
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", redisconn.Unread(err))
	}
	for i, kind := range []string{settingLoad, settingWatch, settingCaps} {
		if value := redisconn.TextAt(single, i); value != "" {
			all[SettingKey{kind, ""}] = value
		}
	}
	aside := map[string]string{}
	if redisconn.TextAt(single, dispatchAt) != "" {
		if aside, err = s.conn.WholeHash(ctx, s.conn.Partition.Dispatch(), ""); err != nil {
			return nil, err
		}
	}
	inQueues := map[string]string{}
	if redisconn.TextAt(single, queueCapsAt) != "" {
		if inQueues, err = s.conn.WholeHash(ctx, s.conn.Partition.QueueCaps(), ""); err != nil {
			return nil, err
		}
	}
	for kind, name := range map[string]string{SettingWeight: "weights", SettingBound: "bounds", settingParked: "maxparked", SettingGate: "gates", SettingQueue: "state", settingPress: "state", settingUsage: "state", settingTiers: "state"} {
		pattern := ""
		switch kind {
		case SettingQueue:
			pattern = "cfg:*"
		case settingPress:
			pattern = "pressure:*"
		case settingUsage:
			pattern = usageField
		case settingTiers:
			pattern = "tw:*"
		}
		fields, err := s.conn.WholeHash(ctx, s.conn.Partition.Base()+name, pattern)
		if err != nil {
			return nil, err
		}
		for field, value := range fields {
			switch {
			case kind == SettingQueue:
				field = strings.TrimPrefix(field, "cfg:")
			case kind == settingTiers:
				field = strings.TrimPrefix(field, "tw:")
			case kind == settingUsage:
				field, value = "", "1"
			case kind == settingPress:
				field, value = strings.TrimPrefix(field, "pressure:"), "1"
			case kind == SettingGate && strings.HasPrefix(field, "b:"):
				continue
			case kind == SettingGate && strings.HasPrefix(field, "o:"):
				spec, _, _ := strings.Cut(value, "|")
				all[SettingKey{settingReserve, field[2:]}] = spec
				continue
			case kind == SettingGate && dispatchAside(aside, field):
				continue
			case kind == SettingGate:
				value = movingSetting(gateSetting(value, shares[field]), moving[field])
			}
			all[SettingKey{kind, field}] = value
		}
	}
	for tenant, row := range aside {
		if _, own, _ := strings.Cut(row, ";"); own != "" {
			all[SettingKey{SettingGate, string(store.TenantRateGate(tenant))}] = own
		}
	}
	all.queueCapsAside(inQueues)
	return all, nil
}

// movingSetting is what the policy says of a gate whose limit is in force instead of the policy's, by what the loop has of it
// (fragments/share.lua).
func movingSetting(value, row string) string {
	const name, own, least, most, limit = 0, 3, 4, 5, 6
	parts := strings.SplitN(row, "|", limit+2)
	inForce, of, shared := strings.Cut(value, "/")
	burst, loop, rate := "", parts[name], false
	// Nobody but the policy and its loop sets a rate: burst~push~eased~loop. While triggers reduce a limit its loop is back~loop.
	if of := strings.SplitN(loop, "~", 4); len(of) >= 4 {
		burst, loop, rate = of[0], of[3], true
	}
	if _, reduced, is := strings.Cut(loop, "~"); is {
		loop = reduced
	}
	switch {
	case len(parts) < limit+2:
		return value
	case !rate && parts[limit] != inForce:
		return "" // Somebody has set it: no policy says that and has it moving, so an edit writes what it says.
	}
	if shared {
		of = "/" + of
	}
	if rate {
		return parts[own] + "~" + parts[least] + "~" + parts[most] + "|" + burst + of + "~" + loop
	}
	return parts[own] + "~" + parts[least] + "~" + parts[most] + of + "~" + loop
}

// gateSetting is what the policy says of a gate, as the gate and its share tell: Cap.text. Of one that only counts it is no value of any,
// so that it goes where there is nothing to count for.
func gateSetting(gate, share string) string {
	parts := strings.SplitN(gate, "|", 5)
	if parts[0] == "*" || len(parts) < 2 {
		return ""
	}
	limit, burst, of := parts[0], "", ""
	switch {
	case len(parts) < 5:
		burst = "|" + parts[1]
	case limit == "0":
		limit = parts[3]
	case parts[2] != "0":
		return forATime + parts[2] // A limit for a time is no policy's, whatever it is: an edit ends it.
	}
	if whole, rest, _ := strings.Cut(share, "|"); whole != "" {
		limit, of = whole, "/"+rest[strings.LastIndex(rest, "|")+1:]
	}
	if limit == "" {
		return ""
	}
	return limit + burst + of
}
