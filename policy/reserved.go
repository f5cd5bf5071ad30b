package policy

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/admission"
)

// GlobalReserved is a part of the global limit that only some classes may take, of whatever queue. Jobs and checks of the others, those that name no class
// among them, are charged to a second bucket as well, which they share: Percent less than the rate and the burst of the global one.
type GlobalReserved struct {
	// Classes are those who may take it.
	Classes []admission.Priority `json:"classes"`
	// Percent is how many percent of the limit it is, 1 to MaxReservedPercent.
	Percent int `json:"percent"`
	// Lend lets others have the rate of it, too, while the global bucket holds that part of its burst. It is of a token bucket alone.
	Lend bool `json:"lend,omitempty"`
}

func (r *GlobalReserved) clone() *GlobalReserved {
	if r == nil {
		return nil
	}
	return &GlobalReserved{slices.Clone(r.Classes), r.Percent, r.Lend}
}

// validateGlobalReserved checks what is kept of the global limit.
func (p Policy) validateGlobalReserved(bad *problems) {
	r := p.GlobalReserved
	if r == nil {
		return
	}
	const at = "global_reserved"
	if p.Global.Tokens == 0 {
		bad.field(at, "(there)", "none without a global limit, which may be disabled")
	}
	p.validateClasses(bad, at+".classes", r.Classes)
	if bad.integer(at+".percent", int64(r.Percent), 1, MaxReservedPercent); r.Percent < 1 || r.Percent > MaxReservedPercent {
		return
	}
	if r.Lend && !p.Global.Window.IsZero() {
		bad.field(at+".lend", "true", "false where the global limit is one of windows, of which nothing comes in meanwhile")
	}
	limit := p.Global.Keeping(r.Percent)
	limit.Disabled = false
	if others, kept := limit.Others(); kept && (others.Burst < 1 || others.Tokens < 1) {
		bad.field(at+".percent", strconv.Itoa(r.Percent), "so many that a token of the global burst is left to others, at least")
	}
}

// validateClasses checks classes of whatever queue.
func (p Policy) validateClasses(bad *problems, at string, classes []admission.Priority) {
	if n := len(classes); n < 1 || n > admission.MaxClasses {
		bad.field(at, strconv.Itoa(n)+" classes", "1 to "+strconv.Itoa(admission.MaxClasses)+" classes")
	}
	known := map[string]bool{}
	for _, class := range admission.DefaultClasses() {
		known[string(class.Name)] = true
	}
	for _, queue := range p.Queues {
		for _, class := range queue.Classes {
			known[string(class.Name)] = true
		}
	}
	for i, class := range classes {
		switch {
		case !known[string(class)]:
			bad.field(at, strconv.Quote(string(class)), "a class of a queue: "+quoteNames(sortedKeys(known)))
		case slices.Contains(classes[:i], class):
			bad.field(at, strconv.Quote(string(class)), "each class once")
		}
	}
}

// DefaultSharePercent is a Bypass' SharePercent where it says none.
const DefaultSharePercent = 10

// Bypass has jobs of some classes, of whatever queue, go beside the limits of their tenant's queue, class and type: their global and tenant's buckets are charged
// alone. What a tenant has of it is bounded, and jobs beyond that go the way of all, as do checks.
type Bypass struct {
	// Classes are those who may; where there is a GlobalReserved they are among its classes.
	Classes []admission.Priority `json:"classes"`
	// ReservePercent is how far below zero they may take the global bucket, in percent of its burst, 0 to 100: in any time t jobs and checks are admitted
	// for burst + rate·t + this at the most. It is of a token bucket alone.
	ReservePercent int `json:"reserve_percent,omitempty"`
	// SharePercent is how many percent of its own limit, rate and burst, a tenant may have go that way, 1 to 100; zero means DefaultSharePercent. A tenant
	// without a limit, or of whose burst that is less than a token, has nothing go that way.
	SharePercent int `json:"share_percent,omitempty"`
}

func (b *Bypass) withDefaults() *Bypass {
	if b == nil {
		return nil
	}
	return &Bypass{slices.Clone(b.Classes), b.ReservePercent, cmp.Or(b.SharePercent, DefaultSharePercent)}
}

// Bypass returns which classes go beside the limits of queues and classes, and how far; nil where none does.
func (c *Compiled) Bypass() *Bypass { return c.bypass.withDefaults() }

// validateBypass checks who goes beside limits.
func (p Policy) validateBypass(bad *problems) {
	b := p.Bypass
	if b == nil {
		return
	}
	p.validateClasses(bad, "bypass.classes", b.Classes)
	if r := p.GlobalReserved; r != nil {
		for _, class := range b.Classes {
			if !slices.Contains(r.Classes, class) {
				bad.field("bypass.classes", strconv.Quote(string(class)), "classes of global_reserved, which is there: "+quoteNames(texts(r.Classes)))
			}
		}
	}
	bad.integer("bypass.reserve_percent", int64(b.ReservePercent), 0, 100)
	switch {
	case b.ReservePercent > 0 && p.Global.Tokens == 0:
		bad.field("bypass.reserve_percent", strconv.Itoa(b.ReservePercent), "0 without a global limit, which may be disabled")
	case b.ReservePercent > 0 && !p.Global.Window.IsZero():
		bad.field("bypass.reserve_percent", strconv.Itoa(b.ReservePercent), "0 where the global limit is one of windows, of which nothing comes in to make up for it")
	}
	bad.integer("bypass.share_percent", int64(b.SharePercent), 1, 100)
}

// ClassWords writes names of classes in a row.
func ClassWords(classes []admission.Priority) string { return strings.Join(texts(classes), ", ") }

// GlobalReserved returns which part of the global limit is kept for which classes; nil where none is.
func (c *Compiled) GlobalReserved() *GlobalReserved { return c.reserved.clone() }

// from is a limit as it is for those from whom a part of it is kept.
func (r *GlobalReserved) from(limit admission.Limit) admission.Limit {
	limit = limit.Keeping(r.Percent)
	if r.Lend {
		limit = limit.Lending()
	}
	return limit
}

// globalFor is the global limit as it is for a class; "" is none.
func (c *Compiled) globalFor(class admission.Priority) admission.Limit {
	switch {
	case c.bypass != nil && slices.Contains(c.bypass.Classes, class):
		return c.global.Bypassing(c.bypass.ReservePercent, c.bypass.SharePercent)
	case c.reserved == nil || slices.Contains(c.reserved.Classes, class):
		return c.global
	}
	return c.reserved.from(c.global)
}
