package ledger

import (
	"math"
	"strings"

	"github.com/headgate/headgate/admission"
)

// headLength is how many letters an order head has at most.
const headLength = 60

// orderHead returns the letters of the stretch that the package comment defines.
func (p *ledgerPage) orderHead(classes []admission.Class) string {
	runnable := p.allRunnable(classes)
	start, best := 0, [2]int{} // best is a stretch, from and to
	for i := range p.log {
		if !runnable[i] {
			start = i + 1
			continue
		}
		if i+1-start > best[1]-best[0] {
			best = [2]int{start, i + 1}
		}
		if best[1]-best[0] == headLength {
			break
		}
	}
	var letters strings.Builder
	for _, d := range p.log[best[0]:best[1]] {
		letters.WriteString(strings.ToUpper(string(p.records[d.job].Class[:1])))
	}
	return letters.String()
}

// allRunnable says of each dispatch whether all classes were known to be runnable at it. It goes through the log
// backwards: what is dispatched later and was admitted before waited at that moment.
func (p *ledgerPage) allRunnable(classes []admission.Class) []bool {
	earliest := make(map[admission.Priority]int64, len(classes))
	for _, class := range classes {
		earliest[class.Name] = math.MaxInt64
	}
	all := make([]bool, len(p.log))
	for i := len(p.log) - 1; i >= 0; i-- {
		r := &p.records[p.log[i].job]
		if at, ok := earliest[r.Class]; ok && r.first == i && !p.suspect(r) {
			earliest[r.Class] = min(at, r.arrival)
		}
		all[i] = true
		for _, at := range earliest {
			all[i] = all[i] && at < p.log[i].token.Millis
		}
	}
	return all
}
