package embedded

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// expiryTick is how early or late a key of miniredis may expire: a tick takes the same time off every TTL, those
// set a moment before it included.
const expiryTick = 250 * time.Millisecond

// openMiniredis runs a store inside this process. Its TIME is the machine's clock as long as nobody calls SetTime;
// its TTLs stand still unless FastForward moves them, which a ticker does. Each FastForward walks all keys;
// miniredis's own ClockTTL would do that at every command.
func openMiniredis(ctx context.Context, config Config) (*Store, error) {
	fmt.Fprintln(config.Log, "headgate: WARNING: no redis-server or valkey-server in PATH. Using a store inside this process: "+
		"no other process can share it, NOTHING SURVIVES IT, and it is slow. "+
		"Install Redis (on Debian: apt-get install redis-server) or give the address of one (redis://host:6379).")
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		return nil, fmt.Errorf("start the store inside this process: %w", err)
	}
	stop := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() { expire(server, stop) })
	closeServer := func() error {
		close(stop)
		ticking.Wait()
		server.Close()
		return nil
	}
	return connect(ctx, KindMiniredis, address{options: privateOptions(config, server.Addr())}, closeServer)
}

// expire moves the TTLs on by the time that has passed, until stop is closed. It measures, because a ticker on a
// busy machine drops ticks.
func expire(server *miniredis.Miniredis, stop <-chan struct{}) {
	tick := time.NewTicker(expiryTick)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-stop:
			return
		case now := <-tick.C:
			server.FastForward(now.Sub(last))
			last = now
		}
	}
}
