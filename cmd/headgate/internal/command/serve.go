package command

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/cmd/headgate/internal/config"
	"github.com/headgate/headgate/cmd/headgate/internal/logs"
	"github.com/headgate/headgate/cmd/headgate/internal/serve"
	"github.com/headgate/headgate/lua"
)

const serveHelp = `Serves the admin API: queues, jobs, dead letters, pauses, decisions without a job, health and
/metrics. GET /api/v1/openapi.json describes it; docs/API.md and docs/SECURITY.md tell the rest.

Every call but health needs a credential: an API key (headgate key new prints one, with the
line that --keys-file needs; several may be valid at a time), or a JSON Web Token signed by a
key of --jwks-file with the algorithm that this key names (HS256, RS256, EdDSA), with the right
iss, aud, exp and nbf, the claim headgate_role (viewer, operator, admin), and headgate_tenant
where it is for one tenant alone. Without files the lines come from ` + serve.KeysVariable + ` and the
key set from ` + serve.JWKSVariable + `.

SIGHUP reads keys, key set and certificate again. SIGTERM answers what is under way, and ends.`

// serveFlags are the flags of headgate serve.
type serveFlags struct {
	site

	config serve.Config
}

func newServe() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use: "serve", Short: "Serve the admin API over HTTP", Long: serveHelp, Args: noArgs,
		Example: `  headgate key new --name ops --role admin
  headgate serve --redis localhost:6379 --keys-file keys
  headgate serve --redis localhost:6379 --address :9443 --keys-file keys --tls-cert cert.pem --tls-key key.pem --allow 10.0.0.0/8
  headgate serve --redis localhost:6379 --jwks-file jwks.json --token-issuer https://id.example.com --token-audience headgate
  headgate serve --redis localhost:6379 --insecure-no-auth`,
		RunE: f.run,
	}
	f.add(c.Flags())
	f.paths = append(f.paths, config.PathLogLevel)
	c.Flags().String("log", "info", "`LEVEL` of the log on standard error: "+strings.Join(logs.Levels, ", "))
	f.addServer(c)
	f.addCredentials(c)
	return c
}

func (f *serveFlags) addServer(c *cobra.Command) {
	flags, s := c.Flags(), &f.config
	flags.StringVar(&s.Address, "address", serve.DefaultAddress, "`HOST:PORT` to listen on")
	flags.StringVar(&s.CertFile, "tls-cert", "", "`FILE` of the certificate chain in PEM; makes it https")
	flags.StringVar(&s.KeyFile, "tls-key", "", "`FILE` of the certificate's key in PEM")
	flags.StringVar(&s.ClientCAFile, "tls-client-ca", "", "`FILE` of authorities in PEM; clients must show a certificate of one of them")
	flags.StringVar(&s.MinTLS, "tls-min", "1.2", "least `VERSION` of TLS, 1.2 or 1.3")
	flags.StringSliceVar(&s.Allow, "allow", nil, "`NETWORKS` that may call, 10.0.0.0/8,2001:db8::1; by default all")
	flags.Int64Var(&s.MaxBody, "max-body", admin.DefaultMaxBody, "largest body in `BYTES`")
	flags.DurationVar(&s.Timeout, "timeout", admin.DefaultTimeout, "longest `TIME` of a call, up to 5m")
	flags.BoolVar(&s.OldHeaders, "x-ratelimit", false, "also send X-RateLimit-Limit, -Remaining and -Reset with decisions")
	flags.IntVar(&s.Rate, "admin-rate", admin.DefaultAdminRate, "`CALLS` a second of one credential, enqueueing and decisions apart")
	flags.IntVar(&s.Burst, "admin-burst", admin.DefaultAdminBurst, "`CALLS` at once of one credential")
}

func (f *serveFlags) addCredentials(c *cobra.Command) {
	flags, s := c.Flags(), &f.config
	flags.StringVar(&s.KeysFile, "keys-file", "", "`FILE` of API keys, the lines of headgate key new; by default "+serve.KeysVariable)
	flags.StringVar(&s.JWKSFile, "jwks-file", "", "`FILE` of the keys that sign tokens, a JSON Web Key Set; by default "+serve.JWKSVariable)
	flags.StringVar(&s.Issuer, "token-issuer", "", "`ISS` that tokens must have")
	flags.StringVar(&s.Audience, "token-audience", "", "`AUD` that tokens must have")
	flags.DurationVar(&s.Leeway, "token-leeway", 0, "`TIME` by which the issuer's clock may be off, up to 5m")
	flags.BoolVar(&s.NoAuth, "insecure-no-auth", false, "take everybody for an admin; on a loopback address only")
}

func (f *serveFlags) run(c *cobra.Command, _ []string) error {
	if err := errors.Join(f.config.Validate(), f.validate()); err != nil {
		return usage(err)
	}
	log := logs.New(c.ErrOrStderr(), f.loaded.Logs())
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	return f.with(c.Context(), c.ErrOrStderr(), func(ctx context.Context, store *lua.Store) error {
		return serve.Run(ctx, store, log.Logger(logs.Admin), log.Logger(logs.Producer), f.config, reload)
	})
}
