package control

import "math"

// Paced moves a rate of calls by a signal: a Part in RateUnits, which sees of the calls beside it what a Rate sees. It is not safe for several goroutines.
type Paced struct{ part *Part }

// NewPaced returns a Paced that begins with the rate in force, or an error that names every bad field.
func NewPaced(config PartConfig, limit int) (*Paced, error) {
	config.Signal = true
	part, err := NewPart(config, limit)
	if err != nil {
		return nil, err
	}
	return &Paced{part}, nil
}

// Tick makes a step of a sample. in is the rate in force: another one than that of the last step is somebody else's, from which it goes on.
//
// What the receiver refuses as too many goes before the signal, and cuts as it cuts a Rate. A rate that is not used does not grow, and where the signal falls as the
// rate grows, it does not fall either: then what is measured is not of it.
func (p *Paced) Tick(in int, s Sample) Step {
	part := p.part
	unread := !(s.Signal >= 0) || math.IsInf(s.Signal, 0)
	switch {
	case part.outside(in):
	case s.Over > 0 && s.Over <= maxGap*part.config.Interval && s.Calls >= 0 && s.refusedTooMany():
		part.follow(in, s.Over)
		return part.cut(through(s, float64(part.force), part.limit)*(1-margin), CauseRefused)
	case unread:
		return part.Tick(in, math.NaN(), s.Over)
	case s.empty():
		return part.stay(in, CauseNoSample)
	case s.Calls < 0 || s.Refused < 0:
		return part.stay(in, CauseGap)
	case s.came() < usedLeast*float64(in) && (part.config.Falls || s.Signal <= part.config.Target):
		return part.stay(in, CauseNotBound)
	}
	return part.Tick(in, s.Signal, s.Over)
}

// refusedTooMany reports whether more calls were refused than a receiver may refuse. A single one among few says nothing.
func (s Sample) refusedTooMany() bool {
	ended := float64(s.Calls + s.Refused)
	return float64(s.Refused) > refusedMost*ended && (s.Refused > 1 || ended >= fewCalls)
}
