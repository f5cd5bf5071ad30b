package breakers

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// BeginProbe asks whether a guest's call of a downstream, work that is no job of the waiting room, may be a probe of the
// fleet's breaker, and returns the breaker's state: there are as many probes as its rules allow, jobs among them. call is a
// name of its own, at most headgate.MaxNameLength bytes; asked again with it, the answer is the same. EndProbe follows once the
// outcome is reported; a probe that nobody ends holds its place until its time-out trips the breaker. more means that work is
// left for Promote.
func (s *Fleet) BeginProbe(ctx context.Context, downstream, call string) (probe bool, word store.BreakerWord, more bool, err error) {
	said, word, more, err := s.probe(ctx, downstream, call, "begin")
	return said == "probe", word, more, err
}

// EndProbe gives the place of a probe free. Ended before, or of a period that is over, it does nothing.
func (s *Fleet) EndProbe(ctx context.Context, downstream, call string) (word store.BreakerWord, more bool, err error) {
	_, word, more, err = s.probe(ctx, downstream, call, "end")
	return word, more, err
}

func (s *Fleet) probe(ctx context.Context, downstream, call, what string) (said string, word store.BreakerWord, more bool, err error) {
	if err := admission.ValidateName("call", call, false); err != nil {
		return "", store.BreakerWord{}, false, err
	}
	reply, err := s.conn.Run(ctx, "probe", s.conn.Now, downstream, call, what)
	if err != nil {
		return "", store.BreakerWord{}, false, err
	}
	if len(reply) != 5 {
		return "", store.BreakerWord{}, false, fmt.Errorf("%s probe: reply has %d words", what, len(reply))
	}
	if word, err = parseWord(reply[2:]); err != nil {
		return "", store.BreakerWord{}, false, fmt.Errorf("%s probe: %w", what, err)
	}
	return reply[0], word, reply[1] == "more", nil
}
