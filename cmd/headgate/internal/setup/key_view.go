package setup

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/config"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/shown"
)

// principalView is whose key it is.
type principalView struct {
	Name    string     `json:"name"`
	Role    string     `json:"role"`
	Tenant  string     `json:"tenant,omitempty"` // empty for all
	Expires *time.Time `json:"expires,omitempty"`
	Expired bool       `json:"expired"`
}

func principalViewOf(who access.Principal) principalView {
	expired := !who.Expires.IsZero() && !time.Now().Before(who.Expires)
	return principalView{who.Name, who.Role.String(), who.Tenant, shown.Stamp(who.Expires), expired}
}

// keysView is what a keys file holds, but for the hashes.
type keysView struct {
	Keys []principalView `json:"keys"`
}

func (v keysView) write(to io.Writer) {
	if len(v.Keys) == 0 {
		return
	}
	t := report.NewTable(to, 4, "name", "role", "tenant", "until")
	for _, k := range v.Keys {
		until, tenant := "for good", k.Tenant
		if k.Expires != nil {
			until = cli.Clock(*k.Expires)
		}
		if k.Expired {
			until += ", which is over"
		}
		if tenant == "" {
			tenant = "all"
		}
		t.AppendRow(table.Row{k.Name, k.Role, tenant, until})
	}
	t.Render()
}

// keysFlags say where the keys are.
type keysFlags struct{ cli.Operator }

func (f *keysFlags) addKeys(c *cobra.Command) {
	f.Add(c)
	f.Paths = config.KeysPaths
	f.Flags.String("keys-file", "", "`FILE` of API keys, the lines of headgate key new; by default HEADGATE_KEYS")
}

// keys reads them.
func (f *keysFlags) keys(c *cobra.Command) (*access.Keys, error) {
	loaded, err := f.Load()
	if err != nil {
		return nil, err
	}
	all, err := loaded.Credentials()
	if err != nil {
		return nil, err
	}
	if all.Keys.Len() == 0 {
		cli.None(c, "there is no key: headgate key new makes one")
	}
	return all.Keys, nil
}

func newKeyList() *cobra.Command {
	var f keysFlags
	c := &cobra.Command{
		Use: "list", Short: "List whose keys a keys file has", Args: cli.NoArgs,
		Long: `Lists the keys of --keys-file, of the configuration or of HEADGATE_KEYS, without their hashes.

Exit codes: 0 done, 1 a line is wrong, 2 a wrong command line.`,
		Example: `  headgate key list --keys-file keys
  headgate key list --config headgate.yaml --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			keys, err := f.keys(c)
			if err != nil {
				return err
			}
			view := keysView{Keys: []principalView{}}
			for _, who := range keys.Principals() {
				view.Keys = append(view.Keys, principalViewOf(who))
			}
			return f.Print(c, view, view.write)
		},
	}
	f.addKeys(c)
	return c
}

func newKeyCheck() *cobra.Command {
	var f keysFlags
	c := &cobra.Command{
		Use: "check", Short: "Tell whose key is on standard input", Args: cli.NoArgs,
		Long: `Reads a key from standard input and tells whose it is by --keys-file, the configuration or
HEADGATE_KEYS. It asks no server.

Exit codes: 0 it is valid, 1 a failure, 2 a wrong command line, 3 it is not.`,
		Example: `  headgate key check --keys-file keys < key`,
		RunE: func(c *cobra.Command, _ []string) error {
			keys, err := f.keys(c)
			if err != nil {
				return err
			}
			const most = 4096 // Far above what a key takes.
			text, err := io.ReadAll(io.LimitReader(c.InOrStdin(), most))
			if err != nil {
				return fmt.Errorf("read the key: %w", err)
			}
			header := http.Header{"Authorization": {"Bearer " + strings.TrimSpace(string(text))}}
			who, err := access.Credentials{Keys: keys}.Authenticate(header)
			if err != nil {
				return cli.Nothing("no line of the keys takes it: it is unknown, or its time is over")
			}
			view := principalViewOf(who)
			return f.Print(c, view, keysView{[]principalView{view}}.write)
		},
	}
	f.addKeys(c)
	return c
}
