package names

import (
	"iter"
	"maps"

	"github.com/headgate/headgate/internal/memory/internal/times"
)

// Keys are the unique keys that jobs hold, TENANT:KEY.
type Keys struct {
	holders map[string]string // keys of jobs
	until   *times.Times
}

// NewKeys returns none.
func NewKeys() Keys { return Keys{map[string]string{}, times.New()} }

// Holder returns the key of the job that holds one, empty for none, and until when. The job may have left.
func (k *Keys) Holder(name string, now int64) (key string, until int64) {
	if until = k.until.At(name); until <= now {
		return "", 0
	}
	return k.holders[name], until
}

// Hold has a job hold a name, and forgets some whose time is over.
func (k *Keys) Hold(name, key string, until, now int64) {
	for _, over := range k.until.Passed(now) {
		delete(k.holders, over)
	}
	k.holders[name] = key
	k.until.Put(name, until)
}

// Release gives a name back that a job holds, if it still does.
func (k *Keys) Release(name, key string) {
	if k.holders[name] == key {
		delete(k.holders, name)
		k.until.Remove(name)
	}
}

// All returns who holds what.
func (k *Keys) All() iter.Seq2[string, string] { return maps.All(k.holders) }
