package config

const pathMetrics = "metrics.address"

func metricsOptions() []Option {
	return []Option{
		{
			Path: pathMetrics, Flag: "metrics", Unset: "none are served",
			Doc:   "Where a worker serves its own metrics, at /metrics, to whoever reaches that address. Those of the whole deployment are `headgate serve`'s.",
			value: address(func(c *Config) *string { return &c.Metrics.Address }),
		},
	}
}
