package worker

import (
	"context"
	"testing"
)

func TestAnObserverThatIsNotThereCostsNothing(t *testing.T) { // Alone: others' allocations would count.
	w, ctx, event := &Worker{}, t.Context(), Event{}
	cost := testing.AllocsPerRun(100, func() {
		got, ended := w.taken(ctx, event, nil)
		ended.call(event)
		w.finished(event)
		if got != ctx {
			t.Error("the handler gets another ctx")
		}
	})
	if cost != 0 {
		t.Errorf("%v allocations", cost)
	}
	w.config.Observer.Taken = func(ctx context.Context, _ Event, _ map[string]string) (context.Context, func(Event)) {
		return ctx, func(Event) {}
	}
	if _, ended := w.taken(ctx, event, nil); ended == nil {
		t.Error("the observer is not asked")
	}
}
