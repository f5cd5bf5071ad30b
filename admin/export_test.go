package admin

import "github.com/headgate/headgate/internal/guard"

// MeasuredBy returns the config with another sampler for its guard.
func (c Config) MeasuredBy(sampler guard.Sampler) Config {
	c.sampler = sampler
	return c
}
