package embedded

import (
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisclient"
)

// ClientSettings gives a client of Redis the settings of the house.
func ClientSettings(options *redis.Options) { redisclient.Settings(options) }
