package serve

import (
	"context"
	"errors"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/config"
	"github.com/headgate/headgate/cmd/headgate/internal/logs"
	"github.com/headgate/headgate/store"
)

const serveHelp = `Serves the admin API: queues, jobs, dead letters, pauses, decisions without a job, health and
/metrics. GET /api/v1/openapi.json describes it; docs/API.md and docs/SECURITY.md tell the rest.

Every call but health needs a credential: an API key (headgate key new prints one, with the
line that --keys-file needs; several may be valid at a time), or a JSON Web Token signed by a
key of --jwks-file with the algorithm that this key names (HS256, RS256, EdDSA), with the right
iss, aud, exp and nbf, the claim headgate_role (viewer, operator, admin), and headgate_tenant
where it is for one tenant alone. Without files the lines come from HEADGATE_KEYS and the key
set from HEADGATE_JWKS.

The options guard.* (by --set, a variable or a file) limit memory, processors, goroutines and calls a
minute: at a limit calls that would begin something are answered 503 with Retry-After.

Each flag is an option of the configuration, which has more of them: headgate config reference.
SIGHUP, and a change of its file or of those of keys, key set and certificate, put in force what
can change meanwhile. SIGTERM answers what is under way, and ends.`

// serveFlags are the flags of serve. Most are options of the configuration, which has their values.
type serveFlags struct{ cli.Target }

// NewCommand returns the command headgate serve.
func NewCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use: "serve", Short: "Serve the admin API over HTTP", Long: serveHelp, Args: cli.NoArgs,
		Example: `  headgate key new --name ops --role admin
  headgate serve --redis localhost:6379 --keys-file keys
  headgate serve --redis localhost:6379 --address :9443 --keys-file keys --tls-cert cert.pem --tls-key key.pem --allow 10.0.0.0/8
  headgate serve --redis localhost:6379 --jwks-file jwks.json --token-issuer https://id.example.com --token-audience headgate
  headgate serve --redis localhost:6379 --insecure-no-auth`,
		RunE: f.run,
	}
	flags := c.Flags()
	f.Add(flags)
	f.Paths = config.Paths(config.ServeSections)
	flags.String("log", "info", "`LEVEL` of the log on standard error: "+strings.Join(logs.Levels, ", "))
	flags.String("address", config.DefaultAddress, "`HOST:PORT` to listen on")
	flags.String("tls-cert", "", "`FILE` of the certificate chain in PEM; makes it https")
	flags.String("tls-key", "", "`FILE` of the certificate's key in PEM")
	flags.String("tls-client-ca", "", "`FILE` of authorities in PEM; clients must show a certificate of one of them")
	flags.String("tls-min", "1.2", "least `VERSION` of TLS, 1.2 or 1.3")
	flags.StringSlice("allow", nil, "`NETWORKS` that may call, 10.0.0.0/8,2001:db8::1; by default all")
	flags.Int("max-body", admin.DefaultMaxBody, "largest body of a job in `BYTES`, with its payload")
	flags.Duration("timeout", admin.DefaultTimeout, "longest `TIME` of a call, 1ms to 5m")
	flags.Bool("x-ratelimit", false, "also send X-RateLimit-Limit, -Remaining, -Reset and -Retry-After with decisions")
	flags.Int("admin-rate", admin.DefaultAdminRate, "`CALLS` a second of one credential, enqueueing and decisions apart")
	flags.Int("admin-burst", admin.DefaultAdminBurst, "`CALLS` at once of one credential")
	flags.String("keys-file", "", "`FILE` of API keys, the lines of headgate key new; by default HEADGATE_KEYS")
	flags.String("jwks-file", "", "`FILE` of the keys that sign tokens, a JSON Web Key Set; by default HEADGATE_JWKS")
	flags.String("token-issuer", "", "`ISS` that tokens must have")
	flags.String("token-audience", "", "`AUD` that tokens must have")
	flags.Duration("token-leeway", 0, "`TIME` by which the issuer's clock may be off, 0s to 5m")
	flags.Bool("insecure-no-auth", false, "take everybody for an admin; on a loopback address only")
	return c
}

// servePercent is how much garbage serve lets gather, in percent of what lives, where GOGC does not say: little lives, and
// with the runtime's 100 the collector runs twenty times a second at 5,000 checks.
const servePercent = 400

func (f *serveFlags) run(c *cobra.Command, _ []string) error {
	if err := f.Validate(); err != nil {
		return err
	}
	if err := f.Loaded.GuardHere(); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(servePercent)
	}
	options, err := ConfigOf(f.Loaded)
	if err != nil {
		return err
	}
	if options.Credentials.None() && !options.NoAuth {
		return cli.Usage(errors.New("say who may call, by --keys-file FILE (headgate key new makes a key) or --jwks-file FILE; on loopback --insecure-no-auth lets everybody in"))
	}
	log := logs.New(c.ErrOrStderr(), f.Loaded.Logs())
	exporter, err := f.Traces(log.Logger(logs.Admin))
	if err != nil {
		return err
	}
	defer exporter.Close(c.Context())
	options.Tracer, options.Version = exporter.Provider(), cli.Release
	return f.With(c.Context(), c.ErrOrStderr(), func(ctx context.Context, s store.Deployment) error {
		server, err := New(s, log.Logger(logs.Admin), log.Logger(logs.Producer), options) //nolint:contextcheck // Handlers have the ctx of their request.
		if err != nil {
			return err
		}
		stop := f.follow(log, server).Start(ctx)
		defer stop()
		return server.Run(ctx)
	})
}

// follow returns the follower of a server.
func (f *serveFlags) follow(log *logs.Logs, server *Server) *cli.Follower {
	apply := func(_ context.Context, next *config.Loaded) error {
		options, err := ConfigOf(next)
		if err != nil {
			return err
		}
		return server.Apply(options.Live)
	}
	return &cli.Follower{
		Target: &f.Target, Logs: log, Logger: log.Logger(logs.Admin), Sections: config.ServeSections, Apply: apply, Started: f.Loaded, Last: f.Loaded,
	}
}
