package policies

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// mostEnvoys is the largest number of Envoys that a limit may be divided among.
const mostEnvoys = 10_000

func newPolicyExport(o *cli.Operator) *cobra.Command {
	var scope string
	var envoys int
	c := &cobra.Command{
		Use: "export envoy --scope SCOPE", Short: "Write a limit in force as Envoy's own token bucket",
		Long: `Writes the limit in force at a scope as the HTTP filter local_ratelimit of Envoy, in YAML, or in JSON
with --json, which Envoy reads as well. Each Envoy holds such a bucket by itself and asks nobody: it
keeps a flood away from what all share. Of several Envoys each has its part, --envoys of them,
rounded down: all together admit no more than the scope may, and Headgate itself still decides.

Only a token bucket can be written so: Envoy has no windows. Envoy fills a bucket each 50 ms at the
most; of a limit that is slower the interval is longer.

Exit codes: 0 done, 1 a failure, as a scope without a limit, 2 a wrong command line.`,
		Example: `  headgate policy export envoy --scope global --envoys 4 --redis localhost:6379
  headgate policy export envoy --scope acme:search --redis localhost:6379 > local_ratelimit.yaml`,
		Args: cli.OneArg("the format, which is envoy"),
		RunE: func(c *cobra.Command, args []string) error {
			if args[0] != "envoy" {
				return cli.Usage(&admission.FieldError{Field: "format", Value: strconv.Quote(args[0]), Allowed: "envoy"})
			}
			if scope == "" {
				return cli.Usage(&admission.FieldError{Field: "--scope", Value: `""`, Allowed: "global, TENANT, TENANT:QUEUE or TENANT:QUEUE:CLASS"})
			}
			if envoys < 1 || envoys > mostEnvoys {
				return cli.Usage(&admission.FieldError{Field: "--envoys", Value: strconv.Itoa(envoys), Allowed: "1 to " + strconv.Itoa(mostEnvoys)})
			}
			return o.With(c, func(ctx context.Context, s store.Deployment) error {
				return exportEnvoy(ctx, o, c, s, scope, envoys)
			})
		},
	}
	c.Flags().StringVar(&scope, "scope", "", "`SCOPE` whose limit it is: global, TENANT, TENANT:QUEUE or TENANT:QUEUE:CLASS")
	c.Flags().IntVar(&envoys, "envoys", 1, "`NUMBER` of Envoys that share the limit, 1 to "+strconv.Itoa(mostEnvoys))
	return c
}

func exportEnvoy(ctx context.Context, o *cli.Operator, c *cobra.Command, s store.Deployment, scope string, envoys int) error {
	config, err := limitInForce(ctx, s, scope)
	if err != nil {
		return err
	}
	switch l := config.InForce; {
	case l == nil:
		return fmt.Errorf("%s has no limit in force: there is nothing to write (see headgate limit get)", scope)
	case l.Algorithm != "":
		return fmt.Errorf("the limit of %s is a %s, and Envoy has token buckets alone", scope, l.Algorithm)
	}
	bucket, err := envoyBucket(config.InForce, envoys)
	if err != nil {
		return fmt.Errorf("the limit of %s: %w", scope, err)
	}
	filter := localRateLimit(bucket)
	return o.Print(c, filter, func(to io.Writer) {
		out := yaml.NewEncoder(to)
		out.SetIndent(2)
		_ = out.Encode(filter) // As all that is printed, to whoever reads.
	})
}

// envoyBucketView is Envoy's type.v3.TokenBucket.
type envoyBucketView struct {
	MaxTokens     int64  `json:"max_tokens" yaml:"max_tokens"`
	TokensPerFill int64  `json:"tokens_per_fill" yaml:"tokens_per_fill"`
	FillInterval  string `json:"fill_interval" yaml:"fill_interval"`
}

// leastFill is the shortest interval at which Envoy fills a bucket.
const leastFill = 50 * time.Millisecond

// envoyBucket is one of so many buckets that together are a limit, or less by rounding.
func envoyBucket(l *shown.Limit, envoys int) (envoyBucketView, error) {
	most := int64(l.Burst) / int64(envoys)
	if most == 0 {
		return envoyBucketView{}, fmt.Errorf("a burst of %d is less than one for each of %d Envoys", l.Burst, envoys)
	}
	each := l.PerMs / 1000 * float64(envoys) / float64(l.Tokens) // Seconds for one token.
	n := max(1, math.Ceil(leastFill.Seconds()/each))
	return envoyBucketView{most, int64(n), strconv.FormatFloat(math.Ceil(each*n*1e9)/1e9, 'f', -1, 64) + "s"}, nil
}

// localRateLimit is the filter around a bucket.
func localRateLimit(bucket envoyBucketView) any {
	type percent struct {
		Numerator   int    `json:"numerator" yaml:"numerator"`
		Denominator string `json:"denominator" yaml:"denominator"`
	}
	type switched struct {
		Key     string  `json:"runtime_key" yaml:"runtime_key"`
		Default percent `json:"default_value" yaml:"default_value"`
	}
	type config struct {
		Type       string          `json:"@type" yaml:"@type"`
		StatPrefix string          `json:"stat_prefix" yaml:"stat_prefix"`
		Bucket     envoyBucketView `json:"token_bucket" yaml:"token_bucket"`
		Enabled    switched        `json:"filter_enabled" yaml:"filter_enabled"`
		Enforced   switched        `json:"filter_enforced" yaml:"filter_enforced"`
	}
	all := percent{100, "HUNDRED"}
	return struct {
		Name   string `json:"name" yaml:"name"`
		Config config `json:"typed_config" yaml:"typed_config"`
	}{"envoy.filters.http.local_ratelimit", config{
		"type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit", "http_local_rate_limiter", bucket,
		switched{"local_rate_limit_enabled", all},
		switched{"local_rate_limit_enforced", all},
	}}
}
