package redisstore_test

import (
	"slices"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// drawClasses draws those of a queue: at times the last is gone, of which jobs may run, be put off or be kept aside.
func (w *walk) drawClasses() []admission.Class {
	return admission.DefaultClasses()[:3-w.number("a class is gone", 0, 3)/3]
}

// classIn returns the class of a queue that a job of a class of three is of.
func (w *walk) classIn(queue string, class int) int {
	classes := admission.DefaultClasses()
	if w.before != nil {
		for _, name := range []string{queue, store.Every} {
			if i := slices.IndexFunc(w.before.Queues, func(q store.QueueSettings) bool { return q.Queue == name }); i >= 0 {
				classes = w.before.Queues[i].Classes
				break
			}
		}
	}
	return min(class, len(classes)-1)
}

// drawEveryClasses draws classes of queues that nobody named: jobs of the walk know the first three by their places.
func (w *walk) drawEveryClasses() []admission.Class {
	classes := admission.DefaultClasses()
	switch w.number("classes of each queue", 0, 5) {
	case 3:
		classes = classes[:2]
	case 0:
		classes = append(classes, admission.Class{Name: "bulk", Weight: 2})
	case 1:
		classes[2].Name = "bulk"
	case 2:
		classes[0].Weight, classes[2].Weight = 1, 5
	}
	return classes
}
