package cli

import (
	"crypto/rand"
	"fmt"
	"os/user"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/store"
)

// ReasonFlag adds --reason.
func ReasonFlag(c *cobra.Command, reason *string) {
	c.Flags().StringVar(reason, "reason", "", fmt.Sprintf("why, for the audit: `TEXT` of up to %d bytes", store.MaxReason))
}

// CheckReason bounds a reason that goes into no audit.
func CheckReason(reason string) error {
	if len(reason) > store.MaxReason {
		return FieldError("reason", fmt.Sprintf("of %d bytes", len(reason)), "up to "+strconv.Itoa(store.MaxReason)+" bytes")
	}
	return nil
}

// EditBy is an edit of whoever runs the command.
func EditBy(reason string) rollout.Edit {
	return rollout.Edit{Author: Author(), Reason: reason, Expected: rollout.AnyVersion}
}

// By says that whoever runs the command changes something. All that the command does is one act.
func By(reason string) store.Intervention {
	return store.Intervention{Author: Author(), Reason: reason, Act: rand.Text()}
}

// Author names whoever runs the command, for the audit.
func Author() string {
	who, err := user.Current()
	if err != nil {
		return "unknown"
	}
	return who.Username
}
