package rollout

import (
	"fmt"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Renew returns a stored policy as another version, for a migration, which changes parts of its bounds and nothing that it says.
func Renew(text []byte, version int64) (store.PolicyUpdate, error) {
	document, err := policy.Stored(text)
	if err != nil {
		return store.PolicyUpdate{}, err
	}
	document.Version = version
	if text, err = policy.Marshal(document); err != nil {
		return store.PolicyUpdate{}, fmt.Errorf("write policy: %w", err)
	}
	update, err := newUpdate(version-1, document, text)
	if err != nil {
		return store.PolicyUpdate{}, err
	}
	update.Changes, err = policy.Summarize(nil)
	return update, err
}
