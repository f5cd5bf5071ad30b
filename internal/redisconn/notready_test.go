package redisconn

import (
	"errors"
	"testing"

	"github.com/headgate/headgate/admission"
)

// reply is an error that Redis answers with.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// TestARedisThatIsNotReadyIsAway: a worker once took LOADING for a refusal of the job that it had to end, gave up after
// five, and ran the job again.
func TestARedisThatIsNotReadyIsAway(t *testing.T) {
	t.Parallel()
	for text, away := range map[string]bool{
		"LOADING Redis is loading the dataset in memory": true, "BUSY Redis is busy running a script.": true,
		"NOREPLICAS Not enough good replicas to write.": true, "MISCONF Redis is configured to save RDB snapshots": true,
		"READONLY You can't write against a read only replica.": true, "ERR syntax error": false, "WRONGTYPE Operation": false,
	} {
		err := &runError{script: "finish", err: Classify(reply(text))}
		if errors.Is(err, admission.ErrUnavailable) != away || err.InDoubt() {
			t.Errorf("%s: unavailable %t, in doubt %t", text, !away, err.InDoubt())
		}
	}
}
