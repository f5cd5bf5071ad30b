package fairqueue

import "strings"

// RecordFunc tells how many jobs of a tenant may be in workers' hands by what the tenant has beside Room.Gates, in the place of what these say. own is the
// tenant's gate there, nil where it has none of its own.
type RecordFunc func(tenant string, own *Gate) (limit int, said bool)

// recorded asks Room.Recorded of a gate.
func (r *Room) recorded(gate string, g *Gate) (limit int, said bool) {
	tenant, is := strings.CutPrefix(gate, "t:")
	if r.Recorded == nil || !is {
		return 0, false
	}
	if g != nil && g.Default {
		g = nil
	}
	return r.Recorded(tenant, g)
}

// LimitOf returns how many jobs a cap lets be in workers' hands, and whether there is one: that of a record, its own, or that of all that have none of their own.
func (r *Room) LimitOf(gate string) (limit int, is bool) {
	g := r.Gates[gate]
	if limit, said := r.recorded(gate, g); said {
		return limit, true
	}
	if g != nil && !g.Default {
		return g.Limit, true
	}
	limit, is = r.Defaults[DefaultOf(gate)]
	return limit, is
}

// DefaultOf names the default of a gate, empty for none.
func DefaultOf(gate string) string {
	kind, guarded, _ := strings.Cut(gate, ":")
	service, _, account := strings.Cut(guarded, accountSign)
	switch kind {
	case "d", "s":
		if account {
			return kind + ":" + service + accountSign + "*"
		}
		if kind == "d" {
			return "d:*"
		}
	case "t":
		return "t:*"
	case "u":
		_, queue, _ := strings.Cut(guarded, ":")
		return "u:*:" + queue
	}
	return ""
}
