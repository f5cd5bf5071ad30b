package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
)

// NewKey returns the command headgate key.
func NewKey() *cobra.Command {
	c := cli.Parent("key", "Make, list and check API keys for headgate serve", `A key is 256 random bits. The server keeps only its SHA-256, in a line of --keys-file, with a
name, a role, and the one tenant that it is for, or * for all. To rotate a key, add the line of a
new one, hand the key out, and take the old line away: the server follows the file.`,
		`  headgate key new --name ops --role admin
  headgate key new --name acme-ci --role operator --tenant acme --expires 2160h
  headgate key list --keys-file keys
  headgate key check --keys-file keys < key`)
	c.AddCommand(newKeyNew(), newKeyList(), newKeyCheck())
	return c
}

// keyFlags are the flags of headgate key new.
type keyFlags struct {
	who     access.Principal
	role    string
	expires time.Duration
	json    bool
}

// keyView is a new key with the line that makes it valid.
type keyView struct {
	Key  string `json:"key"`
	Line string `json:"line"`
}

func newKeyNew() *cobra.Command {
	var f keyFlags
	c := &cobra.Command{
		Use: "new --name NAME --role ROLE", Short: "Print a new key and its line for the keys file", Args: cli.NoArgs,
		Long: `Prints a new key, once and nowhere else, and below it the line for the keys file. It needs no
Redis. Roles: a viewer sees; an operator also enqueues, asks for decisions, pauses, cancels and
redrives; an admin also ends things for good and resets limits. A producer enqueues and asks for
decisions, a worker has sessions of a worker, and neither sees or does anything else.`,
		Example: `  headgate key new --name ops --role admin
  headgate key new --name acme-ci --role operator --tenant acme --expires 2160h --json
  headgate key new --name shop --role producer --tenant acme`,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	flags := c.Flags()
	flags.StringVar(&f.who.Name, "name", "", "`NAME` that logs have for the key (required)")
	flags.StringVar(&f.role, "role", "", "`ROLE`: "+access.RoleNames+" (required)")
	flags.StringVar(&f.who.Tenant, "tenant", "", "`TENANT` that it may see and touch alone; by default all")
	flags.DurationVar(&f.expires, "expires", 0, "`TIME` after which it ends, such as 2160h, 1s or more; by default never")
	flags.BoolVar(&f.json, "json", false, "write one JSON object")
	return c
}

func (f *keyFlags) run(c *cobra.Command) error {
	role, err := access.ParseRole(f.role)
	err = errors.Join(err, admission.ValidateName("name", f.who.Name, false))
	if f.expires < 0 || f.expires > 0 && f.expires < time.Second {
		err = errors.Join(err, &admission.FieldError{Field: "--expires", Value: f.expires.String(), Allowed: "1s or more, or none"})
	}
	if err != nil {
		return cli.Usage(err)
	}
	f.who.Role = role
	if f.expires > 0 {
		f.who.Expires = time.Now().Add(f.expires)
	}
	var view keyView
	if view.Key, view.Line, err = access.NewKey(f.who); err != nil {
		return cli.Usage(err)
	}
	if f.json {
		return json.NewEncoder(c.OutOrStdout()).Encode(view)
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s\n%s\n", view.Key, view.Line)
	return err
}
