package child

import "sync"

// tailBytes is how much of a server's log is kept.
const tailBytes = 16 << 10

// tail is a writer that keeps the end of what was written. It may be used from several goroutines at once.
type tail struct {
	mu struct {
		sync.Mutex
		kept []byte // at most tailBytes
	}
}

// Write keeps the end of what it is given and never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.kept = append(t.mu.kept, p...)
	if surplus := len(t.mu.kept) - tailBytes; surplus > 0 {
		t.mu.kept = append(t.mu.kept[:0], t.mu.kept[surplus:]...)
	}
	return len(p), nil
}

// String returns what is kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.mu.kept)
}

// Reset forgets all of it.
func (t *tail) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.kept = nil
}
