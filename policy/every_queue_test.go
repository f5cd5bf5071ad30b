package policy_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/policy"
)

// TestEveryQueueIsDoomedAsOthers: what "*" says of jobs that would start too late holds for each queue that is not named, as what it says of max_wait does.
func TestEveryQueueIsDoomedAsOthers(t *testing.T) {
	t.Parallel()
	p := policy.Default()
	p.Queues = map[string]policy.Queue{"*": {MaxWait: time.Minute, DoomedPercent: 150}, "named": {MaxWait: time.Second}}
	compiled, err := p.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	for queue, want := range map[string]int{"any": 150, "named": 0} {
		if got := compiled.DoomedPercent(queue); got != want {
			t.Errorf("doomed_percent of queue %s is %d, want %d", queue, got, want)
		}
	}
}
