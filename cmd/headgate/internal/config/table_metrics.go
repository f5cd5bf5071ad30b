package config

import "net"

const pathMetrics = "metrics.address"

func metricsOptions() []Option {
	return []Option{
		{
			Path: pathMetrics, Flag: "metrics", Unset: "none are served",
			Doc: "Where a worker serves its own metrics, at /metrics, to whoever reaches that address. Those of the whole deployment are `headgate serve`'s.",
			value: text("host:port", func(s string) bool {
				_, _, err := net.SplitHostPort(s)
				return err == nil
			}, func(c *Config) *string { return &c.Metrics.Address }),
		},
	}
}
